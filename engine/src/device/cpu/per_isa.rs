//! Plain loops that the compiler turns into vectors, compiled once per instruction set. ARM's vectors are in every
//! processor that it compiles for.

/// Compiles a body once per instruction set and picks among them.
macro_rules! per_isa {
    ($(#[$doc:meta])* $visible:vis $name:ident, $body:ident, ($($arg:ident: $type:ty),*) $(-> $result:ty)?) => {
        $(#[$doc])*
        $visible fn $name(isa: $crate::device::cpu::isa::Isa, $($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) $(-> $result)? {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            fn avx512($($arg: $type),*) $(-> $result)? {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            use $crate::device::cpu::isa::Isa;
            match isa {
                // SAFETY: a `Cpu` holds available kernels only.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => unsafe { avx512($($arg),*) },
                _ => $body($($arg),*),
            }
        }
    };
}

pub(super) use per_isa;
