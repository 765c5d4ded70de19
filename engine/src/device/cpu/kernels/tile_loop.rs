//! The loop of products with widened weights, written once for every instruction set:
//! `c[m, n] (+)= a[m, k] * b[k, n]` over a tile of a few rows and one panel.
//!
//! `b`'s rows lie in vector lanes and each element of `a` is broadcast. Sums over `k` run in order, lane by
//! lane, so a row's result is the same bits whatever rows stand beside it.
//!
//! Widening takes the ports that multiply. One row block widens in registers what it reads. Where several meet a piece of a
//! panel, it is unpacked once, in the first-level cache, and their loop is the one of single precision, which does nothing
//! but multiply.

/// Elements of a sum from one request for what comes next to another: a few lines at a time, for many at once fill the
/// buffers that the kernel's own reads need.
pub(super) const RUN: usize = 4;

/// Defines the kernels of one instruction set from its vector operations (`zero`, `splat`, `fma`, `load_*`,
/// `store`, and `WIDTH` lanes), for each number of rows that `$rows` lists.
macro_rules! tile_kernels {
    ($features:literal, $vector:ty, $rows:tt) => {
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn load_one_f32(from: *const f32) -> [$vector; 1] {
            // SAFETY: the caller vouches for `WIDTH` elements.
            [unsafe { load_f32(from) }]
        }

        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn load_one_f16(from: *const half::f16) -> [$vector; 1] {
            // SAFETY: the caller vouches for `WIDTH` elements.
            [unsafe { load_f16(from) }]
        }

        tile_kernels!(@tile $features, $rows, packed_f32, packed_f32_tile, (f32, 1), load_one_f32);
        tile_kernels!(@tile $features, $rows, packed_f16, packed_f16_tile, (half::f16, 1), load_one_f16);
        tile_kernels!(@tile $features, $rows, packed_bf16, packed_bf16_tile, (Pair, 2), load_pairs);
        tile_kernels!(@unpack $features, unpack_f16, (half::f16, 1), load_one_f16);
        tile_kernels!(@unpack $features, unpack_bf16, (Pair, 2), load_pairs);
    };
    (@tile $features:literal, [$($rows:literal)*], $name:ident, $tile:ident, ($element:ty, $numbers:literal),
     $load:ident) => {
        /// Picks the kernel for a number of rows and columns.
        ///
        /// # Safety
        /// The processor has this module's instructions.
        pub(crate) unsafe fn $name(
            rows: usize,
            columns: usize,
            tile: $crate::device::cpu::layout::wide::Tile<'_, $element>,
        ) {
            tile.check(rows, columns, $numbers);
            // SAFETY: passed on from this function's own contract; the tile's extent was checked.
            unsafe {
                match (rows, columns / WIDTH) {
                    $(($rows, 1) => $tile::<$rows, 1>(tile),)*
                    $(($rows, 2) => $tile::<$rows, 2>(tile),)*
                    _ => unreachable!("tiles have at most {:?} rows and two vectors", [$($rows),*]),
                }
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn $tile<const M: usize, const V: usize>(
            tile: $crate::device::cpu::layout::wide::Tile<'_, $element>,
        ) {
            use $crate::device::cpu::kernels::ahead::Ahead;
            use $crate::device::cpu::kernels::tile_loop::RUN;
            use $crate::device::cpu::layout::wide::DEPTH_BLOCK;
            const _: () = assert!(DEPTH_BLOCK.is_multiple_of(RUN * $numbers));
            let mut ahead = Ahead::new(tile.next, tile.depth.div_ceil(RUN));
            let (mut b, c) = (tile.b.as_ptr(), tile.c.as_mut_ptr());
            // SAFETY: the tile's extent was checked by the caller.
            unsafe {
                let mut sums = [[zero(); V]; M];
                if tile.accumulate {
                    for m in 0..M {
                        for v in 0..V {
                            sums[m][v] = load_f32(c.add((m * V + v) * WIDTH));
                        }
                    }
                }
                for first in (0..tile.depth).step_by(RUN) {
                    ahead.step();
                    let at = first * $numbers;
                    let mut a = tile.a.as_ptr().add(at / DEPTH_BLOCK * tile.a_block + at % DEPTH_BLOCK);
                    for _ in 0..RUN.min(tile.depth - first) {
                        let mut lanes = [[zero(); $numbers]; V];
                        for v in 0..V {
                            lanes[v] = $load(b.add(v * WIDTH));
                        }
                        for number in 0..$numbers {
                            for m in 0..M {
                                let value = splat(*a.add(m * DEPTH_BLOCK + number));
                                for v in 0..V {
                                    sums[m][v] = fma(value, lanes[v][number], sums[m][v]);
                                }
                            }
                        }
                        a = a.add($numbers);
                        b = b.add(V * WIDTH);
                    }
                }
                for m in 0..M {
                    for v in 0..V {
                        store(c.add((m * V + v) * WIDTH), sums[m][v]);
                    }
                }
            }
        }
    };
    (@unpack $features:literal, $name:ident, ($element:ty, $numbers:literal), $load:ident) => {
        /// `to`, `[inputs, width]`, = the numbers of a piece of a panel, `[elements, width]`.
        ///
        /// # Safety
        /// The processor has this module's instructions.
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $name(width: usize, from: &[$element], to: &mut [f32]) {
            assert!(width.is_multiple_of(WIDTH) && from.len().is_multiple_of(width));
            assert!(to.len() == from.len() * $numbers);
            for first in (0..from.len()).step_by(width) {
                for lane in (0..width).step_by(WIDTH) {
                    // SAFETY: both have a vector there, as the asserts say.
                    unsafe {
                        let numbers = $load(from.as_ptr().add(first + lane));
                        for number in 0..$numbers {
                            let at = first * $numbers + number * width + lane;
                            store(to.as_mut_ptr().add(at), numbers[number]);
                        }
                    }
                }
            }
        }
    };
}
pub(super) use tile_kernels;
