//! The sections of a prompt made from a schema (DESIGN 3: independent reuse).

use std::collections::BTreeMap;

use base::Sees;

use super::assemble::{Assembly, Stretch};
use super::layout::{Layout, Unit};
use crate::conversation::Sectioned;

impl Assembly {
    /// The prompt's sections. Imported units keep their placeholders: what follows one in its unit is computed seeing
    /// it. Pieces of units that are not cached count as new.
    pub fn sections(&self, layout: &Layout) -> Sectioned {
        let mut sectioned = Sectioned::default();
        let used = self.stretches.iter().filter_map(|stretch| match stretch {
            Stretch::Piece { unit, piece, start, tokens } => Some(((*unit, *piece), (*start, *tokens))),
            Stretch::New { .. } => None,
        });
        let used: BTreeMap<(usize, usize), (u32, usize)> = used.collect();
        for (number, unit) in layout.units.iter().enumerate().filter(|(_, unit)| unit.is_cached) {
            sectioned.push_unit(unit, |piece| used.get(&(number, piece)).copied());
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
        sectioned
    }
}

impl Sectioned {
    /// The pieces of a unit up to the last that the prompt has; `used`: where one stands in it, and how many of its tokens.
    fn push_unit(&mut self, unit: &Unit, used: impl Fn(usize) -> Option<(u32, usize)>) {
        let first = self.sections.len() as u32;
        let base = unit.pieces.first().map_or(0, |piece| piece.start);
        let end = (0..unit.pieces.len()).rfind(|number| used(*number).is_some()).map_or(0, |last| last + 1);
        for (number, piece) in unit.pieces.iter().enumerate().take(end) {
            let (start, tokens) = used(number).unwrap_or((piece.start, piece.tokens.len()));
            let origin = start - (piece.start - base);
            let sees = Sees::Unit { first, origin, is_placeholder: piece.is_placeholder };
            self.push(start, &piece.tokens[..tokens], sees);
        }
    }
}
