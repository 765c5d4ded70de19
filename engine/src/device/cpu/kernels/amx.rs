//! The matrix unit of Intel's processors (AMX), by its instructions; the intrinsics are not stable yet.
//!
//! It is used only where products on it have the very bits that its software twin gives.
//!
//! Tiles are state of a thread that the compiler does not know: a task configures them once for all its
//! products and leaves none behind.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod unit {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;
    use std::sync::OnceLock;

    use super::super::emulated::Emulated;
    use super::super::matrix_unit::{ROW_BYTES, Shapes, Unit, agree};
    use super::super::matrix_unit_bytes;
    use crate::device::cpu::layout::tiles::TILE;

    /// Whether the processor has the unit for bf16 and this process is allowed its state.
    ///
    /// CPUID leaf 7, EDX: bit 22 is AMX-BF16, bit 24 AMX-TILE. Linux gives the tiles' 8 KiB of state to a
    /// process that asks for it once (arch_prctl(2), ARCH_REQ_XCOMP_PERM).
    pub(crate) fn is_available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| {
            let features = __cpuid_count(7, 0).edx;
            let is_present = features & (1 << 22) != 0 && features & (1 << 24) != 0;
            // SAFETY: the processor has the unit and the kernel lets this process use it.
            is_present && ask_for_tiles() && unsafe { agree::<Amx, Emulated>() }
        })
    }

    /// Whether the unit multiplies bytes too (CPUID leaf 7, EDX: bit 25 is AMX-INT8).
    pub(crate) fn multiplies_bytes() -> bool {
        static MULTIPLIES: OnceLock<bool> = OnceLock::new();
        *MULTIPLIES.get_or_init(|| {
            let is_present = __cpuid_count(7, 0).edx & (1 << 25) != 0;
            // SAFETY: the processor has the unit and the kernel lets this process use it.
            is_present && is_available() && unsafe { matrix_unit_bytes::agree::<Amx, Emulated>() }
        })
    }

    /// Asks the kernel for the tiles' state.
    fn ask_for_tiles() -> bool {
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
        const XFEATURE_XTILEDATA: u64 = 18;
        let result: i64;
        // SAFETY: the call reads no memory and changes nothing but what this process may use; a kernel that
        // does not know it answers with an error.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") ARCH_PRCTL => result,
                in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILEDATA,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack)
            );
        }
        result == 0
    }

    /// What `ldtilecfg` reads.
    #[repr(C, align(64))]
    struct Config {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        /// Bytes of each tile's rows; sixteen entries, of which eight count.
        row_bytes: [u16; 16],
        /// Rows of each tile; likewise.
        rows: [u8; 16],
    }

    /// The unit itself: the tiles of the thread that uses it.
    #[derive(Default)]
    pub(crate) struct Amx(());

    impl Unit for Amx {
        unsafe fn configured(shapes: Shapes, work: &mut dyn FnMut()) {
            /// Leaves no tiles behind, whatever happens.
            struct Released;
            impl Drop for Released {
                fn drop(&mut self) {
                    // SAFETY: whoever configured the tiles vouched for the unit.
                    unsafe { asm!("tilerelease", options(nostack, nomem)) };
                }
            }
            let mut config =
                Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
            config.row_bytes[..8].fill(ROW_BYTES as u16);
            config.rows[..8].fill(TILE as u8);
            let (narrow, short) = match shapes {
                Shapes::Products => (0..0, 0..0),
                Shapes::Attention => (5..6, 7..8),
                Shapes::HalfDepth => (4..6, 6..8),
            };
            config.row_bytes[narrow].fill(ROW_BYTES as u16 / 2);
            config.rows[short].fill(TILE as u8 / 2);
            // SAFETY: it reads the 64 bytes of `config`.
            unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
            let _released = Released;
            work();
        }

        unsafe fn clear<const T: usize>(&mut self) {
            // SAFETY: it touches no memory.
            unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, nomem)) };
        }

        unsafe fn load<const T: usize>(&mut self, from: *const u8, row_bytes: usize) {
            // SAFETY: passed on from this function's own contract.
            unsafe {
                asm!(
                    "tileloadd tmm{t}, [{from} + {row}*1]",
                    t = const T,
                    from = in(reg) from,
                    row = in(reg) row_bytes,
                    options(nostack, readonly)
                );
            }
        }

        unsafe fn load_passing<const T: usize>(&mut self, from: *const u8, row_bytes: usize) {
            // SAFETY: passed on from this function's own contract.
            unsafe {
                asm!(
                    "tileloaddt1 tmm{t}, [{from} + {row}*1]",
                    t = const T,
                    from = in(reg) from,
                    row = in(reg) row_bytes,
                    options(nostack, readonly)
                );
            }
        }

        unsafe fn load_narrow<const T: usize>(&mut self, from: *const u8, row_bytes: usize) {
            // SAFETY: the tile's shape is in its configuration.
            unsafe { self.load::<T>(from, row_bytes) };
        }

        unsafe fn load_short<const T: usize>(&mut self, from: *const u8, row_bytes: usize) {
            // SAFETY: as above.
            unsafe { self.load::<T>(from, row_bytes) };
        }

        unsafe fn multiply<const SUMS: usize, const A: usize, const B: usize>(&mut self) {
            // SAFETY: it touches no memory.
            unsafe {
                asm!(
                    "tdpbf16ps tmm{sums}, tmm{a}, tmm{b}",
                    sums = const SUMS,
                    a = const A,
                    b = const B,
                    options(nostack, nomem)
                );
            }
        }

        unsafe fn multiply_bytes<const SUMS: usize, const A: usize, const B: usize>(&mut self) {
            // SAFETY: it touches no memory.
            unsafe {
                asm!(
                    "tdpbsud tmm{sums}, tmm{a}, tmm{b}",
                    sums = const SUMS,
                    a = const A,
                    b = const B,
                    options(nostack, nomem)
                );
            }
        }

        unsafe fn store<const T: usize>(&mut self, to: *mut u8, row_bytes: usize) {
            // SAFETY: passed on from this function's own contract.
            unsafe {
                asm!(
                    "tilestored [{to} + {row}*1], tmm{t}",
                    t = const T,
                    to = in(reg) to,
                    row = in(reg) row_bytes,
                    options(nostack)
                );
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod unit {
    /// Stands where the unit cannot be.
    pub(crate) use super::super::emulated::Emulated as Amx;

    /// Not on this machine.
    pub(crate) fn is_available() -> bool {
        false
    }

    /// Not on this machine.
    pub(crate) fn multiplies_bytes() -> bool {
        false
    }
}

pub(crate) use unit::{Amx, is_available, multiplies_bytes};
