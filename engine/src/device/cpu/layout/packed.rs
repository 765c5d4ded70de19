//! Memory of packed weights, and of keys and values: mapped apart from the heap, in huge pages where the
//! system has them.
//!
//! A product streams it once: loads of whole vectors then never cross a cache line, and few of them a page.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use half::{bf16, f16};
use memmap2::MmapMut;
#[cfg(target_os = "linux")]
use rayon::prelude::*;

/// Bytes from which huge pages (of 2 MiB) are asked for: of less, the rest that fills none is so large a
/// share that reading was slower (the product bench, 768 x 3072 in eight bits).
#[cfg(target_os = "linux")]
const HUGE_FROM: usize = 4 << 20;

/// A number, or numbers, of which all bits zero are a value.
///
/// # Safety
/// Every pattern of bits is a value, none of its bytes is padding, and the alignment is at most a page's.
pub(crate) unsafe trait Bits: Copy + Send + Sync + 'static {}

// SAFETY: plain numbers.
unsafe impl Bits for u8 {}
// SAFETY: as above.
unsafe impl Bits for i8 {}
// SAFETY: as above.
unsafe impl Bits for f32 {}
// SAFETY: as above, around a `u16`.
unsafe impl Bits for f16 {}
// SAFETY: as above, around a `u16`.
unsafe impl Bits for bf16 {}
// SAFETY: so is each of them.
unsafe impl<T: Bits, const N: usize> Bits for [T; N] {}

/// The bytes of some numbers.
pub(crate) fn bytes_of<T: Bits>(numbers: &[T]) -> &[u8] {
    // SAFETY: numbers have no padding, and bytes may lie anywhere.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// A slice that owns its pages.
pub(crate) struct Packed<T> {
    map: MmapMut,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Bits> Packed<T> {
    /// `len` zeros.
    ///
    /// # Panics
    /// Where the system has no such memory, as any allocation does.
    pub(crate) fn zeros(len: usize) -> Self {
        let bytes =
            len.checked_mul(size_of::<T>()).expect("weights were in memory before, in no fewer bytes");
        let map = MmapMut::map_anon(bytes.max(1)).expect("the system has memory for the weights");
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_FROM && map.advise(memmap2::Advice::HugePage).is_err() {
            tracing::debug!("the system has no huge pages to offer");
        }
        Self { map, len, element: PhantomData }
    }

    /// Has the system hand out all its pages now, on all threads of the current pool: each is cleared once, and
    /// whoever writes it first would wait for that.
    pub(crate) fn fault_in(&mut self) {
        #[cfg(target_os = "linux")]
        {
            /// Bytes that a task asks for at once: huge pages are not cut by it.
            const PIECE: usize = 32 << 20;
            let bytes = size_of_val(&self[..]);
            let asked = (0..bytes).into_par_iter().step_by(PIECE).try_for_each(|first| {
                let len = PIECE.min(bytes - first);
                self.map.advise_range(memmap2::Advice::PopulateWrite, first, len)
            });
            if let Err(error) = asked {
                tracing::debug!(%error, "memory is handed out as it is written");
            }
        }
    }
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
impl<T: Bits> Packed<T> {
    /// How many of its whole pages the system has handed out, and how many there are; `None` where it does not say.
    pub(crate) fn pages(&self) -> Option<(usize, usize)> {
        use std::os::unix::fs::FileExt as _;
        /// Bytes of a page, and of what the system says of one.
        const PAGE: usize = 4096;
        const ENTRY: usize = 8;
        let map = std::fs::File::open("/proc/self/pagemap").ok()?;
        let all = size_of_val(&self[..]) / PAGE;
        let mut entries = vec![0_u8; all * ENTRY];
        let first = self.as_ptr() as usize / PAGE * ENTRY;
        map.read_exact_at(&mut entries, first as u64).ok()?;
        // An entry's highest bit.
        Some((entries.chunks_exact(ENTRY).filter(|entry| entry[ENTRY - 1] >= 0x80).count(), all))
    }
}

impl<T: Bits> Deref for Packed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the map is as long, page-aligned, and every pattern is a value.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.len) }
    }
}

impl<T: Bits> DerefMut for Packed<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the map is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_zeros_and_keeps_what_is_written() {
        for len in [0, 1, 5, 3 << 20] {
            let mut packed = Packed::<[bf16; 2]>::zeros(len);
            assert!(packed.len() == len && packed.iter().all(|pair| *pair == [bf16::ZERO; 2]));
            packed.fault_in();
            assert!(packed.iter().all(|pair| *pair == [bf16::ZERO; 2]));
            if let Some(last) = packed.last_mut() {
                *last = [bf16::ONE; 2];
            }
            assert_eq!(packed.iter().filter(|pair| **pair == [bf16::ONE; 2]).count(), len.min(1));
        }
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn its_pages_are_handed_out_when_that_is_asked_for_and_not_before() {
        let page = MmapMut::map_anon(4096).expect("a page");
        let hands_out = page.advise(memmap2::Advice::PopulateWrite).is_ok();
        let mut packed = Packed::<f32>::zeros(2 << 20);
        // Systems that cannot, or do not say, have nothing to try.
        let Some(before) = packed.pages().filter(|_| hands_out) else { return };
        packed.fault_in();
        let all = (8 << 20) / 4096;
        assert_eq!((before, packed.pages()), ((0, all), Some((all, all))));
    }
}
