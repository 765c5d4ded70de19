//! The kernel of products with widened weights: `c[m, n] (+)= a[m, k] * b[k, n]` over a tile of a few rows and one panel.
//!
//! `b`'s rows lie in vector lanes and each element of `a` is broadcast. Sums over `k` run in order, lane by
//! lane, so a row's result is the same bits whatever rows stand beside it.

use super::packed::Bits;
use super::{Isa, avx2, avx512, portable};

/// Multiple of which every `n` is: one 512-bit or two 256-bit vectors of singles.
pub(crate) const LANES: usize = 16;

/// Operands of one tile. The caller vouches that every element the kernel touches is inside its buffer.
#[derive(Clone, Copy)]
pub(crate) struct Tile<E> {
    /// Length of the sums.
    pub(crate) depth: usize,
    /// Left operand, packed by [`pack_rows`].
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

/// An element type that weights may be stored in.
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
        tile_kernels!(@kernel $features, $rows, packed_f32, packed_f32_tile, f32, load_f32);
        tile_kernels!(@kernel $features, $rows, packed_f16, packed_f16_tile, half::f16, load_f16);
        tile_kernels!(@kernel $features, $rows, packed_bf16, packed_bf16_tile, half::bf16, load_bf16);
    };
    (@kernel $features:literal, [$($rows:literal)*], $name:ident, $tile:ident, $element:ty, $load:ident) => {
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
                        let value = splat(*a.add(m));
                        for v in 0..V {
                            sums[m][v] = fma(value, lanes[v], sums[m][v]);
                        }
                    }
                    a = a.add(M);
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
