//! A prompt as the scheduler takes it: tokens and sections (DESIGN 3: independent reuse).

use base::{Section, Sees, TokenCount, TokenId};

use super::assemble::{Assembly, Stretch};
use super::layout::{Layout, Unit};

/// A prompt's tokens, cut into sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sectioned {
    /// The tokens, in the order of the sections.
    pub prompt: Vec<TokenId>,
    /// The sections: units first, in order, then what is new, by position.
    pub sections: Vec<Section>,
}

impl Assembly {
    /// The prompt's sections. Imported units keep their placeholders: what follows one in its unit is computed seeing
    /// it. Pieces of units that are not cached count as new.
    pub fn sections(&self, layout: &Layout) -> Sectioned {
        let mut sectioned = Sectioned::default();
        for (number, unit) in layout.units.iter().enumerate().filter(|(_, unit)| unit.is_cached) {
            self.push_unit(number, unit, &mut sectioned);
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

    /// The pieces of a unit up to the last that the prompt has.
    fn push_unit(&self, number: usize, unit: &Unit, sectioned: &mut Sectioned) {
        let first = sectioned.sections.len() as u32;
        let base = unit.pieces.first().map_or(0, |piece| piece.start);
        let used: Vec<Option<(u32, usize)>> =
            (0..unit.pieces.len()).map(|piece| self.used(number, piece)).collect();
        let end = used.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        for (piece, used) in unit.pieces.iter().zip(used).take(end) {
            let (start, tokens) = used.unwrap_or((piece.start, piece.tokens.len()));
            let origin = start - (piece.start - base);
            let sees = Sees::Unit { first, origin, is_placeholder: piece.is_placeholder };
            sectioned.push(start, &piece.tokens[..tokens], sees);
        }
    }

    /// Where a piece stands in the prompt, and how many of its tokens.
    fn used(&self, in_unit: usize, number: usize) -> Option<(u32, usize)> {
        self.stretches.iter().find_map(|stretch| match stretch {
            Stretch::Piece { unit, piece, start, tokens } if (*unit, *piece) == (in_unit, number) => {
                Some((*start, *tokens))
            }
            _ => None,
        })
    }
}

impl Sectioned {
    fn push(&mut self, position: u32, tokens: &[TokenId], sees: Sees) {
        self.prompt.extend_from_slice(tokens);
        self.sections.push(Section { tokens: TokenCount(tokens.len() as u64), position, sees });
    }
}
