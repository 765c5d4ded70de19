//! The loop of products with widened weights, written once for every instruction set:
//! `c[m, n] (+)= a[m, k] * b[k, n]` over a tile of a few rows and one panel.
//!
//! `b`'s rows lie in vector lanes and each element of `a` is broadcast. Sums over `k` run in order, lane by
//! lane, so a row's result is the same bits whatever rows stand beside it.

/// Defines the kernels of one instruction set from its vector operations (`zero`, `splat`, `fma`, `load_*`,
/// `store`, and `WIDTH` lanes), for each number of rows that `$rows` lists.
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
        pub(crate) unsafe fn $name(rows: usize, columns: usize, tile: &$crate::device::cpu::layout::wide::Tile<$element>) {
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
        unsafe fn $tile<const M: usize, const V: usize>(tile: &$crate::device::cpu::layout::wide::Tile<$element>) {
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
