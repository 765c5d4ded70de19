//! The one product kernel: `c[m, n] (+)= a[m, k] * b[k, n]` over a tile of a few rows and one panel.
//!
//! `b`'s rows lie in vector lanes and each element of `a` is broadcast. Sums over `k` run in order, lane by
//! lane, so a row's result is the same bits whatever rows stand beside it.

use super::packed::Bits;
use super::{Isa, avx2, avx512, portable};

/// Multiple of which every `n` is: one 512-bit or two 256-bit vectors of singles.
pub(crate) const LANES: usize = 16;

/// Row stride of a block of attention scores: a constant, so that kernels address rows by it for free.
pub(crate) const SCORE_STRIDE: usize = 128;

/// Operands of one tile. The caller vouches that every element the kernel touches is inside its buffer.
#[derive(Clone, Copy)]
pub(crate) struct Tile<E> {
    /// Length of the sums.
    pub(crate) depth: usize,
    /// Left operand; how it is addressed is the kernel's kind (packed or scores).
    pub(crate) a: *const f32,
    /// Right operand: row `k` at `b + k * b_step`.
    pub(crate) b: *const E,
    /// Elements from one row of `b` to the next.
    pub(crate) b_step: usize,
    /// Result: row `m` at `c + m * c_row`.
    pub(crate) c: *mut f32,
    /// Elements from one row of `c` to the next.
    pub(crate) c_row: usize,
    /// Whether to add to `c` or to overwrite it.
    pub(crate) accumulate: bool,
}

/// An element type that weights, keys and values may be stored in.
pub(crate) trait Element: Bits {
    /// The number, in single precision.
    fn widen(self) -> f32;
    /// The number rounded to this type.
    fn narrow(value: f32) -> Self;
    /// The tile kernel of `isa`, left operand packed (`a[k * rows + m]`).
    ///
    /// # Safety
    /// As [`Tile`] says, and `isa` is available.
    unsafe fn tile(isa: Isa, rows: usize, columns: usize, tile: &Tile<Self>);
}

macro_rules! element {
    ($type:ty, $kernel:ident, $widen:expr, $narrow:expr) => {
        impl Element for $type {
            #[inline]
            fn widen(self) -> f32 {
                $widen(self)
            }
            #[inline]
            fn narrow(value: f32) -> Self {
                $narrow(value)
            }
            unsafe fn tile(isa: Isa, rows: usize, columns: usize, tile: &Tile<Self>) {
                // SAFETY: passed on from this function's own contract.
                unsafe {
                    match isa {
                        Isa::Portable => portable::packed(rows, columns, tile),
                        Isa::Avx2 => avx2::$kernel(rows, columns, tile),
                        Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => {
                            avx512::$kernel(rows, columns, tile)
                        }
                    }
                }
            }
        }
    };
}
element!(f32, packed_f32, |x| x, |x| x);
element!(half::f16, packed_f16, half::f16::to_f32, half::f16::from_f32);
element!(half::bf16, packed_bf16, half::bf16::to_f32, half::bf16::from_f32);

/// `c[rows, columns] (+)= a * b` with `a` packed by [`pack_rows`] and `b` rows of at least `columns` lanes.
///
/// `c` begins at row 0, column 0 of the result; all operands are checked against the tile's extent.
pub(crate) fn tile_packed<E: Element>(
    isa: Isa,
    rows: usize,
    columns: usize,
    a: &[f32],
    (b, b_step): (&[E], usize),
    (c, c_row): (&mut [f32], usize),
    accumulate: bool,
) {
    let depth = a.len() / rows.max(1);
    check_extent(rows, columns, depth, (b.len(), b_step), (c.len(), c_row));
    assert!(rows <= isa.rows_max() && a.len() == rows * depth);
    for column in (0..columns).step_by(isa.panel().min(columns)) {
        let width = isa.panel().min(columns - column);
        // SAFETY: the asserts above bound every element of `a`, `b` and `c`; a `Cpu` holds available kernels only.
        unsafe {
            let tile = Tile {
                depth,
                a: a.as_ptr(),
                b: b.as_ptr().add(column),
                b_step,
                c: c.as_mut_ptr().add(column),
                c_row,
                accumulate,
            };
            E::tile(isa, rows, width, &tile);
        }
    }
}

/// `c[rows, columns] += a * b` with `a[m, k]` at `a[m * SCORE_STRIDE + k]`, over `depth` values of `k`.
pub(crate) fn tile_scores(
    isa: Isa,
    (rows, columns, depth): (usize, usize, usize),
    a: &[f32],
    (b, b_step): (&[f32], usize),
    (c, c_row): (&mut [f32], usize),
) {
    if depth == 0 {
        return;
    }
    check_extent(rows, columns, depth, (b.len(), b_step), (c.len(), c_row));
    assert!(rows <= isa.rows_max() && depth <= SCORE_STRIDE && a.len() >= (rows - 1) * SCORE_STRIDE + depth);
    for column in (0..columns).step_by(isa.panel().min(columns)) {
        let width = isa.panel().min(columns - column);
        // SAFETY: as in `tile_packed`.
        unsafe {
            let tile = Tile {
                depth,
                a: a.as_ptr(),
                b: b.as_ptr().add(column),
                b_step,
                c: c.as_mut_ptr().add(column),
                c_row,
                accumulate: true,
            };
            match isa {
                Isa::Portable => portable::scores(rows, width, &tile),
                Isa::Avx2 => avx2::scores_f32(rows, width, &tile),
                Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => {
                    avx512::scores_f32(rows, width, &tile)
                }
            }
        }
    }
}

/// The bounds that make a tile's raw accesses sound.
fn check_extent(
    rows: usize,
    columns: usize,
    depth: usize,
    (b_len, b_step): (usize, usize),
    (c_len, c_row): (usize, usize),
) {
    assert!(rows > 0 && columns > 0 && columns.is_multiple_of(LANES));
    assert!(depth == 0 || b_len >= (depth - 1) * b_step + columns);
    assert!(c_len >= (rows - 1) * c_row + columns);
}

/// Cuts `rows` into blocks of nearly equal size, none above `rows_max`: `(first row, rows)` each.
pub(crate) fn row_blocks(rows: usize, rows_max: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    let blocks = rows.div_ceil(rows_max);
    (0..blocks).map(move |block| {
        let first = block * rows / blocks;
        (first, (block + 1) * rows / blocks - first)
    })
}

/// Copies rows of `depth` so that the kernel reads them in order: `packed[k * rows + m] = x[m, k]`.
pub(crate) fn pack_rows(x: &[f32], depth: usize, packed: &mut [f32]) {
    let rows = x.len() / depth.max(1);
    assert!(packed.len() == x.len());
    for (row, values) in x.chunks_exact(depth).enumerate() {
        for (k, value) in values.iter().enumerate() {
            packed[k * rows + row] = *value;
        }
    }
}

/// Defines the kernels of one instruction set from its vector operations (`zero`, `splat`, `fma`, `load_*`, `store`,
/// and `WIDTH` lanes), for each number of rows that `$rows` lists.
macro_rules! tile_kernels {
    ($features:literal, $rows:tt) => {
        tile_kernels!(@kernel $features, $rows, packed_f32, packed_f32_tile, f32, load_f32, M, 1);
        tile_kernels!(@kernel $features, $rows, packed_f16, packed_f16_tile, half::f16, load_f16, M, 1);
        tile_kernels!(@kernel $features, $rows, packed_bf16, packed_bf16_tile, half::bf16, load_bf16, M, 1);
        tile_kernels!(@kernel $features, $rows, scores_f32, scores_f32_tile, f32, load_f32, 1, $crate::device::cpu::SCORE_STRIDE);
    };
    (@kernel $features:literal, [$($rows:literal)*], $name:ident, $tile:ident, $element:ty, $load:ident, $step:expr, $row:expr) => {
        /// Picks the kernel for a number of rows and columns.
        ///
        /// # Safety
        /// As the tile says, and the processor has this module's instructions.
        pub(in crate::device::cpu) unsafe fn $name(rows: usize, columns: usize, tile: &$crate::device::cpu::tile::Tile<$element>) {
            // SAFETY: passed on from this function's own contract.
            unsafe {
                match (rows, columns / WIDTH) {
                    $(($rows, 1) => $tile::<$rows, 1>(tile),)*
                    $(($rows, 2) => $tile::<$rows, 2>(tile),)*
                    _ => unreachable!("tiles have at most {:?} rows and two vectors", [$($rows),*]),
                }
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn $tile<const M: usize, const V: usize>(tile: &$crate::device::cpu::tile::Tile<$element>) {
            // SAFETY: the tile's extent was checked by the caller.
            unsafe {
                let mut sums = [[zero(); V]; M];
                if tile.accumulate {
                    for m in 0..M {
                        for v in 0..V {
                            sums[m][v] = load_f32(tile.c.add(m * tile.c_row + v * WIDTH));
                        }
                    }
                }
                let (mut a, mut b) = (tile.a, tile.b);
                for _ in 0..tile.depth {
                    let mut lanes = [zero(); V];
                    for v in 0..V {
                        lanes[v] = $load(b.add(v * WIDTH));
                    }
                    for m in 0..M {
                        let value = splat(*a.add(m * $row));
                        for v in 0..V {
                            sums[m][v] = fma(value, lanes[v], sums[m][v]);
                        }
                    }
                    a = a.add($step);
                    b = b.wrapping_add(tile.b_step);
                }
                for m in 0..M {
                    for v in 0..V {
                        store(tile.c.add(m * tile.c_row + v * WIDTH), sums[m][v]);
                    }
                }
            }
        }
    };
}
pub(super) use tile_kernels;
