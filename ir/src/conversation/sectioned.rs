//! A prompt as the scheduler takes it: tokens and sections (DESIGN 3: independent reuse).

use std::ops::Range;

use base::{Section, Sees, TokenCount, TokenId};

/// A prompt's tokens, cut into sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sectioned {
    /// The tokens, in the order of the sections.
    pub prompt: Vec<TokenId>,
    /// The sections, in the order in which they are computed.
    pub sections: Vec<Section>,
}

impl Sectioned {
    /// Adds a section at its end.
    pub(crate) fn push(&mut self, position: u32, tokens: &[TokenId], sees: Sees) {
        self.prompt.extend_from_slice(tokens);
        self.sections.push(Section { tokens: TokenCount(tokens.len() as u64), position, sees });
    }

    /// The first tokens of each unit that has something before it, in the form that [`Self::repaired`] takes
    /// (EPIC's LegoLink, arXiv 2410.15332): a span that sees only itself takes its first tokens for the
    /// beginning of all, and much of every other token's attention goes there. `count`: how many they are, by
    /// the number of the unit's first section.
    pub fn first_tokens(&self, count: impl Fn(u32) -> u32) -> Vec<Vec<Range<u32>>> {
        let mut left = 0;
        let of_section = |(number, section): (u32, &Section)| {
            let Sees::Unit { first, is_placeholder, .. } = section.sees else { return Vec::new() };
            if first == number {
                left = if self.is_first(number) { 0 } else { u64::from(count(number)) };
            }
            let taken = if is_placeholder { 0 } else { left.min(section.tokens.0) };
            left -= taken;
            (taken > 0).then_some(0..taken as u32).into_iter().collect()
        };
        (0..).zip(&self.sections).map(of_section).collect()
    }

    /// Whether nothing stands before a unit, of which `first` is the first section: it sees all there is.
    pub fn is_first(&self, first: u32) -> bool {
        let is_of_unit =
            |section: &Section| matches!(section.sees, Sees::Unit { first: unit, .. } if unit == first);
        let visible = || self.sections.iter().filter(|section| !section.is_placeholder());
        let position = visible().filter(|section| is_of_unit(section)).map(|section| section.position).min();
        position.is_none_or(|position| {
            visible().all(|section| is_of_unit(section) || section.position >= position)
        })
    }

    /// The prompt in which these tokens of each section, ranges in order, are computed again where they stand,
    /// seeing all before them. What is left of a unit is read as it is, and stays what other prompts read; a
    /// unit of which nothing is left is a text like any other.
    pub fn repaired(&self, ranges: &[Vec<Range<u32>>]) -> Self {
        if self.sections.is_empty() {
            return self.clone();
        }
        let left = self.units_left(ranges);
        let (mut made, mut moved, mut start) = (Self::default(), Vec::new(), 0);
        let mut waiting: Vec<(u32, &[TokenId])> = Vec::new();
        for (section, ranges) in self.sections.iter().zip(ranges) {
            let tokens = &self.prompt[start..start + section.tokens.0 as usize];
            start += tokens.len();
            if let Sees::Unit { first, origin, is_placeholder } = section.sees {
                moved.push(made.sections.len() as u32);
                if left.binary_search(&first).is_ok() {
                    let first = moved[first as usize];
                    made.push(section.position, tokens, Sees::Unit { first, origin, is_placeholder });
                }
                waiting.extend(ranges.iter().map(|range| {
                    let tokens = &tokens[range.start as usize..range.end as usize];
                    (section.position + range.start, tokens)
                }));
            } else {
                // Whatever sees all before it stands in the order of positions.
                waiting.sort_by_key(|(position, _)| *position);
                let before = waiting.partition_point(|(position, _)| *position < section.position);
                waiting.drain(..before).for_each(|(at, tokens)| made.push(at, tokens, Sees::Before));
                moved.push(made.sections.len() as u32);
                made.push(section.position, tokens, Sees::Before);
            }
        }
        made
    }

    /// Units, by their first sections, of which not every token that is read is repaired.
    fn units_left(&self, ranges: &[Vec<Range<u32>>]) -> Vec<u32> {
        let unit = |(section, ranges): (&Section, &Vec<Range<u32>>)| match section.sees {
            Sees::Unit { first, is_placeholder: false, .. } => {
                let repaired: u32 = ranges.iter().map(|range| range.end - range.start).sum();
                (u64::from(repaired) < section.tokens.0).then_some(first)
            }
            _ => None,
        };
        self.sections.iter().zip(ranges).filter_map(unit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section's text and position, and of a unit its first section and whether it stands in for something.
    type SectionedPart<'a> = (&'a str, u32, Option<(u32, bool)>);

    /// A letter is a token; of a unit, the number of its first section, and whether it stands in for something.
    fn sectioned(parts: &[SectionedPart<'_>]) -> Sectioned {
        let mut made = Sectioned::default();
        for (text, position, unit) in parts {
            let tokens: Vec<TokenId> = text.bytes().map(|byte| TokenId(byte.into())).collect();
            let sees = match unit {
                None => Sees::Before,
                Some((first, is_placeholder)) => {
                    let origin = parts[*first as usize].1;
                    Sees::Unit { first: *first, origin, is_placeholder: *is_placeholder }
                }
            };
            made.push(*position, &tokens, sees);
        }
        made
    }

    /// A line per section: its text, its position, and of a unit its first section.
    fn shown(sectioned: &Sectioned) -> Vec<String> {
        let mut start = 0;
        let line = |section: &Section| {
            let tokens = &sectioned.prompt[start..start + section.tokens.0 as usize];
            start += tokens.len();
            let text: String = tokens.iter().map(|token| char::from(token.0 as u8)).collect();
            let unit = match section.sees {
                Sees::Before => String::new(),
                Sees::Unit { first, origin, .. } => format!(" of {first} from {origin}"),
            };
            format!("{text} at {}{unit}", section.position)
        };
        sectioned.sections.iter().map(line).collect()
    }

    #[test]
    fn the_first_tokens_of_spans_are_computed_again_where_they_stand() {
        let spans = sectioned(&[
            ("sys", 0, None),
            ("abcde", 3, Some((1, false))),
            ("fg", 8, Some((2, false))),
            ("mid", 10, None),
            ("hijkl", 13, Some((4, false))),
            ("end", 18, None),
        ]);
        assert_eq!(spans.repaired(&spans.first_tokens(|_| 0)), spans);
        assert_eq!(
            shown(&spans.repaired(&spans.first_tokens(|_| 2))),
            [
                "sys at 0",
                "abcde at 3 of 1 from 3",
                "ab at 3",
                "fg at 8",
                "mid at 10",
                "hijkl at 13 of 5 from 13",
                "hi at 13",
                "end at 18"
            ]
        );
        // As if nothing had been a span.
        assert_eq!(
            shown(&spans.repaired(&spans.first_tokens(|_| 5))),
            ["sys at 0", "abcde at 3", "fg at 8", "mid at 10", "hijkl at 13", "end at 18"]
        );
        assert_eq!(
            spans.repaired(&spans.first_tokens(|_| u32::MAX)),
            spans.repaired(&spans.first_tokens(|_| 5))
        );
    }

    #[test]
    fn what_stands_first_sees_all_there_is() {
        let first =
            sectioned(&[("abc", 0, Some((0, false))), ("def", 3, Some((1, false))), ("end", 6, None)]);
        assert_eq!(
            shown(&first.repaired(&first.first_tokens(|_| 1))),
            ["abc at 0 of 0 from 0", "def at 3 of 1 from 3", "d at 3", "end at 6"]
        );
        let whole = Sectioned { prompt: vec![TokenId(1)], sections: Vec::new() };
        assert_eq!(whole.repaired(&whole.first_tokens(|_| 4)), whole);
    }

    #[test]
    fn an_argument_is_no_part_of_what_is_repaired_of_its_module() {
        // The second unit has a gap of two positions, where the argument stands.
        let modules = sectioned(&[
            ("ab", 0, Some((0, false))),
            ("cd", 2, Some((1, false))),
            ("__", 4, Some((1, true))),
            ("efg", 6, Some((1, false))),
            ("XY", 4, None),
            ("end", 9, None),
        ]);
        assert_eq!(
            shown(&modules.repaired(&modules.first_tokens(|_| 3))),
            [
                "ab at 0 of 0 from 0",
                "cd at 2 of 1 from 2",
                "__ at 4 of 1 from 2",
                "efg at 6 of 1 from 2",
                "cd at 2",
                "XY at 4",
                "e at 6",
                "end at 9"
            ]
        );
        let one = std::iter::once(1..2).collect();
        let scattered = modules.repaired(&[vec![], one, vec![], vec![0..1, 2..3], vec![], vec![]]);
        assert_eq!(shown(&scattered)[4..], ["d at 3", "XY at 4", "e at 6", "g at 8", "end at 9"]);
    }
}
