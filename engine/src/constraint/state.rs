//! One row's way through a compiled constraint.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use base::{ConstraintError, TokenId};
use llguidance::toktrie::SimpleVob;
use llguidance::{TokenParser, panic_utils};

use super::reason;

/// Tokens that are forced at once: what a step has to compute of a row is bounded. More wait for the next.
const FORCED_MAX: usize = 32;

/// Where a row stands in its constraint.
pub(crate) struct ConstraintState {
    parser: TokenParser,
    /// What the first token may be: the same for all rows of the constraint.
    first: Option<Arc<SimpleVob>>,
}

/// What a token did to its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// More is to be decided, once these tokens have followed: nothing else may.
    Open(Vec<TokenId>),
    /// Nothing is: these bytes follow, and the output is complete.
    Ended(Vec<u8>),
}

impl ConstraintState {
    /// The start of a constraint.
    pub(super) fn new(mut parser: TokenParser) -> Result<Self, ConstraintError> {
        let first = allowed(&mut parser)?;
        Ok(Self { parser, first: Some(Arc::new(first)) })
    }

    /// The same place for another row. Rows share no caches, so that none waits for, or breaks with, another.
    pub(super) fn fresh(&self) -> Self {
        Self { parser: self.parser.deep_clone(), first: self.first.clone() }
    }

    /// The tokens that may come next, end tokens among them where the output may end here. Never none.
    pub(crate) fn allowed(&mut self) -> Result<Arc<SimpleVob>, ConstraintError> {
        match &self.first {
            Some(first) => Ok(Arc::clone(first)),
            None => allowed(&mut self.parser).map(Arc::new),
        }
    }

    /// Takes the token that came, one of those that may, and those that it forces.
    pub(crate) fn push(&mut self, token: TokenId) -> Result<Pushed, ConstraintError> {
        match self.take(token)? {
            Pushed::Open(_) => Ok(Pushed::Open(self.force()?)),
            ended => Ok(ended),
        }
    }

    /// Takes the tokens that must come next, as the tokenizer cuts the text that is forced. Of its end they
    /// leave out what the free text behind might join.
    fn force(&mut self) -> Result<Vec<TokenId>, ConstraintError> {
        let parser = &mut self.parser;
        let forced = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            let mut forced = parser.compute_ff_tokens();
            forced.truncate(FORCED_MAX);
            forced.iter().try_for_each(|token| parser.consume_token(*token).map(|_| ()))?;
            Ok(forced)
        }));
        Ok(forced.map_err(|error| reason(&error))?.into_iter().map(TokenId).collect())
    }

    /// Takes the token that came and nothing more.
    pub(crate) fn take(&mut self, token: TokenId) -> Result<Pushed, ConstraintError> {
        self.first = None;
        let parser = &mut self.parser;
        let pushed = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            parser.consume_token(token.0)?;
            if parser.check_stop()? {
                return Ok(Pushed::Ended(Vec::new()));
            }
            let forced = parser.force_bytes();
            let is_complete = parser.parser.is_accepting() && !parser.parser.can_advance();
            Ok(if is_complete { Pushed::Ended(forced) } else { Pushed::Open(Vec::new()) })
        }));
        pushed.map_err(|error| reason(&error))
    }
}

/// The tokens that may come next.
fn allowed(parser: &mut TokenParser) -> Result<SimpleVob, ConstraintError> {
    let mask = panic_utils::catch_unwind(AssertUnwindSafe(|| parser.compute_mask()));
    match mask {
        Ok(mask) if !mask.is_zero() => Ok(mask),
        Ok(_) => Err(ConstraintError("no token of the model continues the constraint".into())),
        Err(error) => Err(reason(&error)),
    }
}
