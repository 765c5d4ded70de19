//! The loop of the products of attention, written once for every instruction set:
//! `c[m, n] (+)= sum over k of left[m, k] * right[k, n]` over a strip of rows.
//!
//! What lies in lanes comes from pieces anywhere in memory, and a number on the left is broadcast. Sums over
//! `k` run in order, lane by lane, so a row's result is the same bits whatever rows stand beside it.

/// Defines a kernel of one instruction set: how a vector of the right is loaded, and how its products with an
/// element of the left are added to a sum. `zero`, `load_f32`, `store` and `WIDTH` are the instruction set's
/// own.
macro_rules! strip_kernel {
    ($features:literal, $name:ident, $by_rows:ident, $strip:ident, $left:ty, $right:ty, $load:ident, $add:ident) => {
        /// Picks the kernel for a number of rows and columns.
        ///
        /// # Safety
        /// As the strip says, and the processor has this module's instructions.
        pub(crate) unsafe fn $name(
            rows: usize,
            columns: usize,
            strip: &$crate::device::cpu::layout::strip::Strip<'_, $left, $right>,
        ) {
            // SAFETY: passed on from this function's own contract.
            unsafe {
                match columns {
                    1 => $by_rows::<1>(rows, strip),
                    2 => $by_rows::<2>(rows, strip),
                    3 => $by_rows::<3>(rows, strip),
                    4 => $by_rows::<4>(rows, strip),
                    _ => unreachable!("strips have one to four columns"),
                }
            }
        }

        unsafe fn $by_rows<const V: usize>(
            rows: usize,
            strip: &$crate::device::cpu::layout::strip::Strip<'_, $left, $right>,
        ) {
            // SAFETY: as above.
            unsafe {
                match rows {
                    1 => $strip::<1, V>(strip),
                    2 => $strip::<2, V>(strip),
                    3 => $strip::<3, V>(strip),
                    4 => $strip::<4, V>(strip),
                    5 => $strip::<5, V>(strip),
                    6 => $strip::<6, V>(strip),
                    _ => unreachable!("strips have one to six rows"),
                }
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn $strip<const M: usize, const V: usize>(
            strip: &$crate::device::cpu::layout::strip::Strip<'_, $left, $right>,
        ) {
            const VECTORS: usize = $crate::device::cpu::layout::blocks::LANES / WIDTH; // of a column
            // SAFETY: the strip's extent was checked by the caller.
            unsafe {
                let mut sums = [[[zero(); VECTORS]; V]; M];
                if strip.accumulate {
                    for m in 0..M {
                        for v in 0..V {
                            for i in 0..VECTORS {
                                let at = m * strip.c_row + (v * VECTORS + i) * WIDTH;
                                sums[m][v][i] = load_f32(strip.c.add(at));
                            }
                        }
                    }
                }
                for segment in strip.segments {
                    let mut left = strip.left.add(segment.skip);
                    let mut columns = segment.columns;
                    for _ in 0..segment.depth {
                        for v in 0..V {
                            for i in 0..VECTORS {
                                let lanes = $load(columns[v].add(i * WIDTH));
                                for m in 0..M {
                                    let sum = &mut sums[m][v][i];
                                    *sum = $add(*sum, left.add(m * strip.left_row), lanes);
                                }
                            }
                            columns[v] = columns[v].wrapping_add(strip.right_step);
                        }
                        left = left.wrapping_add(1);
                    }
                }
                for m in 0..M {
                    for v in 0..V {
                        for i in 0..VECTORS {
                            let at = m * strip.c_row + (v * VECTORS + i) * WIDTH;
                            store(strip.c.add(at), sums[m][v][i]);
                        }
                    }
                }
            }
        }
    };
}
pub(super) use strip_kernel;

/// Defines the kernels of one instruction set that multiply single precision: with single precision, and with
/// pairs of bf16. `splat`, `fma` and `load_pairs` are its own too.
macro_rules! widening_strips {
    ($features:literal, $vector:ty) => {
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn add_single(sum: $vector, left: *const f32, lanes: $vector) -> $vector {
            // SAFETY: the caller vouches for the element.
            fma(splat(unsafe { *left }), lanes, sum)
        }

        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn add_widened(sum: $vector, left: *const [f32; 2], lanes: [$vector; 2]) -> $vector {
            // SAFETY: the caller vouches for the element.
            let [first, second] = unsafe { *left };
            fma(splat(second), lanes[1], fma(splat(first), lanes[0], sum))
        }

        strip_kernel!($features, strip_singles, singles_by_rows, singles, f32, f32, load_f32, add_single);
        strip_kernel!(
            $features,
            strip_widened,
            widened_by_rows,
            widened,
            [f32; 2],
            Pair,
            load_pairs,
            add_widened
        );
    };
}
pub(super) use widening_strips;
