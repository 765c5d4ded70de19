//! The sections of a prompt made from a schema (DESIGN 3: independent reuse).

use std::collections::BTreeMap;

use base::Sees;

use super::assemble::{Assembly, Stretch};
use super::layout::{Layout, Unit};
use crate::conversation::Sectioned;

impl Assembly {
    /// The prompt's sections. Imported units keep their placeholders: what follows one in its unit is
    /// computed seeing it. Pieces of units that are not cached count as new.
    pub fn sections(&self, layout: &Layout) -> Sectioned {
        self.repaired(layout, |_| 0)
    }

    /// The same where of each unit so many of its first tokens are computed again where they stand, seeing all
    /// before them ([`Sectioned::first_tokens`]).
    pub fn repaired(&self, layout: &Layout, first_tokens: impl Fn(&Unit) -> u32) -> Sectioned {
        let mut sectioned = Sectioned::default();
        // By the number of a unit's first section.
        let mut units: BTreeMap<u32, &Unit> = BTreeMap::new();
        let used = self.stretches.iter().filter_map(|stretch| match stretch {
            Stretch::Piece { unit, piece, start, tokens } => Some(((*unit, *piece), (*start, *tokens))),
            Stretch::New { .. } => None,
        });
        let used: BTreeMap<(usize, usize), (u32, usize)> = used.collect();
        for (number, unit) in layout.units.iter().enumerate().filter(|(_, unit)| unit.is_cached) {
            units.insert(sectioned.sections.len() as u32, unit);
            sectioned.push_unit(unit, layout.can_shift, |piece| used.get(&(number, piece)).copied());
        }
        for stretch in &self.stretches {
            match stretch {
                Stretch::New { start, tokens } => sectioned.push(*start, tokens, Sees::Before),
                Stretch::Piece { unit, piece, start, tokens } if !layout.units[*unit].is_cached => {
                    let piece = &layout.units[*unit].pieces[*piece];
                    sectioned.push(*start, &piece.tokens[..*tokens], Sees::Before);
                }
                Stretch::Piece { .. } => {}
            }
        }
        // Of units without a piece in the prompt the map keeps the last, which is the one that has sections.
        let first_tokens = |first: u32| units.get(&first).map_or(0, |unit| first_tokens(unit));
        sectioned.repaired(&sectioned.first_tokens(first_tokens))
    }
}

/// What computes a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// The unit's number.
    pub unit: usize,
    /// Its tokens, and one more behind them: an answer, which nobody reads, follows from a token that is
    /// computed.
    pub sectioned: Sectioned,
}

impl Layout {
    /// What computes the units that are kept, each on its own.
    pub fn encodings(&self) -> Vec<Encoding> {
        let encoding = |(number, unit): (usize, &Unit)| {
            let last = unit.pieces.last().filter(|_| unit.is_cached)?;
            let mut sectioned = Sectioned::default();
            let piece = |number: usize| {
                let piece = &unit.pieces[number];
                Some((piece.start, piece.tokens.len()))
            };
            sectioned.push_unit(unit, self.can_shift, piece);
            let end = last.start + u32::try_from(last.tokens.len()).expect("a position is a u32");
            sectioned.push(end, &last.tokens[..1], Sees::Before);
            Some(Encoding { unit: number, sectioned })
        };
        self.units.iter().enumerate().filter_map(encoding).collect()
    }
}

impl Sectioned {
    /// The pieces of a unit up to the last that the prompt has; `used`: where one stands in it, and how many
    /// of its tokens.
    fn push_unit(&mut self, unit: &Unit, can_shift: bool, used: impl Fn(usize) -> Option<(u32, usize)>) {
        let first = self.sections.len() as u32;
        // What can be shifted counts from its unit's beginning: two schemas with one text share its keys.
        let base = unit.pieces.first().filter(|_| can_shift).map_or(0, |piece| piece.start);
        let end = (0..unit.pieces.len()).rfind(|number| used(*number).is_some()).map_or(0, |last| last + 1);
        for (number, piece) in unit.pieces.iter().enumerate().take(end) {
            let (start, tokens) = used(number).unwrap_or((piece.start, piece.tokens.len()));
            let origin = start - (piece.start - base);
            let sees = Sees::Unit { first, origin, is_placeholder: piece.is_placeholder };
            self.push(start, &piece.tokens[..tokens], sees);
        }
    }
}
