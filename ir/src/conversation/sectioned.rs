//! A prompt as the scheduler takes it: tokens and sections (DESIGN 3: independent reuse).

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
}
