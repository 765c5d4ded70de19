//! The highest outputs of a product, found while its tiles are hot: all that greedy and top-k sampling need
//! of logits.
//!
//! A tile is compared with what a row has so far, which nearly all of them fall short of: a few comparisons
//! per vector, and no output is written.

use super::isa::Isa;
use super::per_isa::per_isa;
use super::processor::Cpu;

/// Most outputs that are kept of a row: to put each in its place costs more than writing all outputs, if they
/// are many.
pub(crate) const KEPT_MAX: usize = 64;

/// Outputs of a row that are looked at together, where they have been written.
const TOGETHER: usize = 64;

/// The highest outputs of a row: the highest first, of equals the one of the lowest number.
#[derive(Clone, Debug, PartialEq)]
pub struct TopK {
    /// How many are wanted.
    wanted: usize,
    /// Outputs with their numbers.
    kept: Vec<(f32, u32)>,
    /// Whether all outputs were finite numbers, those that may not be kept too.
    is_sound: bool,
}

impl TopK {
    /// None yet of `wanted`.
    pub(crate) fn new(wanted: usize) -> Self {
        Self { wanted, kept: Vec::with_capacity(wanted), is_sound: true }
    }

    /// Outputs with their numbers; `None` where any output is not a finite number.
    pub fn kept(&self) -> Option<&[(f32, u32)]> {
        self.is_sound.then_some(&self.kept)
    }

    /// What an output must be above.
    fn bar(&self) -> f32 {
        if self.kept.len() < self.wanted { f32::NEG_INFINITY } else { self.kept[self.wanted - 1].0 }
    }

    /// Takes an output of a higher number than all before it.
    fn push(&mut self, value: f32, number: u32) {
        if value > self.bar() {
            self.kept.truncate(self.wanted - 1);
            let at = self.kept.partition_point(|(other, _)| *other >= value);
            self.kept.insert(at, (value, number));
        }
    }

    /// From what was found elsewhere: at most `wanted` outputs with their numbers, in any order.
    pub(crate) fn gathered(wanted: usize, is_sound: bool, mut kept: Vec<(f32, u32)>) -> Self {
        // Both zeros are the same.
        kept.sort_unstable_by(|(x, i), (y, j)| (y + 0.0).total_cmp(&(x + 0.0)).then(i.cmp(j)));
        Self { wanted, kept, is_sound }
    }

    /// Makes of each output what `change` makes of it, which must not turn their order.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut [f32])) {
        let mut values: Vec<f32> = self.kept.iter().map(|(value, _)| *value).collect();
        change(&mut values);
        let kept = values.into_iter().zip(&self.kept).map(|(value, (_, number))| (value, *number)).collect();
        *self = Self::gathered(self.wanted, self.is_sound, kept); // what differed may be equal now
    }

    /// Takes those of outputs that all have higher numbers.
    pub(crate) fn append(&mut self, other: &Self) {
        self.is_sound &= other.is_sound;
        for (value, number) in &other.kept {
            self.push(*value, *number);
        }
    }

    /// In the form in which ranks exchange it: whether it is sound, then outputs, then their numbers' bits.
    pub(crate) fn written(&self) -> impl Iterator<Item = f32> {
        let sound = if self.is_sound { 1.0 } else { 0.0 };
        let filled = |column: Vec<f32>| {
            column.into_iter().chain(std::iter::repeat(f32::NEG_INFINITY)).take(self.wanted)
        };
        let values = filled(self.kept.iter().map(|(value, _)| *value).collect());
        let numbers = filled(self.kept.iter().map(|(_, number)| f32::from_bits(*number)).collect());
        std::iter::once(sound).chain(values).chain(numbers)
    }

    /// Takes what begins `from`, written by another rank, of outputs of which number 0 is `first` here; gives
    /// back what is behind it.
    pub(crate) fn append_written<'a>(&mut self, from: &'a [f32], first: usize) -> &'a [f32] {
        let (own, behind) = from.split_at(1 + 2 * self.wanted);
        self.is_sound &= own[0] == 1.0;
        let (values, numbers) = own[1..].split_at(self.wanted);
        for (value, number) in values.iter().zip(numbers).filter(|(value, _)| value.is_finite()) {
            self.push(*value, first as u32 + number.to_bits());
        }
        behind
    }
}

/// Where a tile's sums lie among the outputs.
#[derive(Clone, Copy)]
pub(super) struct SumsPlace {
    /// Sums of a row.
    pub(super) width: usize,
    /// How many of them are outputs.
    pub(super) columns: usize,
    /// Number of the first.
    pub(super) first: usize,
    /// Outputs from this number on may not be kept.
    pub(super) end: usize,
}

#[inline(always)]
fn look_body(sums: &[f32], place: SumsPlace, rows: &mut [TopK]) {
    for (sums, row) in sums.chunks_exact(place.width).zip(rows) {
        let (sums, bar) = (&sums[..place.columns], row.bar());
        // Not `x > bar`: what is not a number counts too.
        #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "what is not a number must not pass")]
        let stands_out = |any: bool, x: &f32| any | !(*x <= bar) | (*x < f32::MIN);
        let (vectors, rest) = sums.as_chunks::<16>();
        let any = |numbers: &[f32]| numbers.iter().fold(false, stands_out);
        if vectors.iter().fold(false, |found, vector| found | any(vector)) || any(rest) {
            take(sums, place, row);
        }
    }
}

/// Looks at outputs one by one.
#[cold]
fn take(sums: &[f32], place: SumsPlace, row: &mut TopK) {
    for (number, value) in (place.first..).zip(sums) {
        if !value.is_finite() {
            row.is_sound = false;
        } else if number < place.end {
            row.push(*value, number as u32);
        }
    }
}

per_isa!(
    /// Keeps what is highest in a tile: a row of sums for each of `rows`.
    pub(super) look, look_body, (sums: &[f32], place: SumsPlace, rows: &mut [TopK])
);

impl Cpu {
    /// The `wanted` highest of a row of outputs that have been written; those from `end` on may not be kept.
    pub(crate) fn top_k_of(&self, outputs: &[f32], wanted: usize, end: usize) -> TopK {
        top_k_of(self.isa, outputs, wanted, end)
    }
}

fn top_k_of(isa: Isa, outputs: &[f32], wanted: usize, end: usize) -> TopK {
    let mut found = [TopK::new(wanted)];
    for (number, outputs) in outputs.chunks(TOGETHER).enumerate() {
        let place = SumsPlace { width: outputs.len(), columns: outputs.len(), first: number * TOGETHER, end };
        look(isa, outputs, place, &mut found);
    }
    let [found] = found;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By definition: sorted by value, equals by number.
    fn expected(outputs: &[f32], wanted: usize, end: usize) -> Option<Vec<(f32, u32)>> {
        let mut all: Vec<(f32, u32)> = outputs[..end.min(outputs.len())].iter().copied().zip(0..).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        all.truncate(wanted);
        outputs.iter().all(|x| x.is_finite()).then_some(all)
    }

    fn outputs(len: usize, seed: usize) -> Vec<f32> {
        // Few different values, so that there are equals.
        (0..len).map(|i| (((i * 7919 + seed * 104_729) % 61) as f32 - 30.0) / 4.0 + 0.25).collect()
    }

    #[test]
    fn the_highest_are_kept_the_lowest_of_equals_first_on_every_instruction_set() {
        for isa in Isa::available() {
            for (len, seed) in [1, 15, 16, 17, 63, 64, 65, 130, 1000].into_iter().zip(0..) {
                let outputs = outputs(len, seed);
                for (wanted, end) in [(1, len), (1, len / 2), (3, len), (40, len + 9), (KEPT_MAX, len - 1)] {
                    let found = top_k_of(isa, &outputs, wanted, end);
                    assert_eq!(
                        found.kept().map(<[_]>::to_vec),
                        expected(&outputs, wanted, end),
                        "{isa:?} {len}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_output_that_is_not_a_number_is_found_wherever_it_stands() {
        for isa in Isa::available() {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in 0..70 {
                    let mut outputs = outputs(70, 3);
                    assert!(top_k_of(isa, &outputs, 2, 40).kept().is_some());
                    outputs[at] = bad;
                    assert_eq!(top_k_of(isa, &outputs, 2, 40).kept(), None, "{isa:?} {bad} at {at}");
                }
            }
        }
    }

    #[test]
    fn what_ranks_exchange_gives_what_one_has() {
        let outputs = outputs(96, 5);
        for (wanted, end) in [(1, 96), (5, 50), (40, 96), (40, 10)] {
            let whole = top_k_of(Isa::Portable, &outputs, wanted, end);
            let mut merged = TopK::new(wanted);
            for (rank, part) in outputs.chunks(32).enumerate() {
                let found = top_k_of(Isa::Portable, part, wanted, end.saturating_sub(32 * rank));
                let written: Vec<f32> = found.written().chain([7.0]).collect();
                assert_eq!(
                    merged.append_written(&written, 32 * rank),
                    [7.0],
                    "what is behind it is another's"
                );
            }
            assert_eq!(merged, whole);
        }
        let mut odd = outputs.clone();
        odd[95] = f32::NAN;
        let written: Vec<f32> = top_k_of(Isa::Portable, &odd, 2, 10).written().collect();
        let mut merged = top_k_of(Isa::Portable, &outputs, 2, 96);
        merged.append_written(&written, 96);
        assert_eq!(merged.kept(), None);
    }
}
