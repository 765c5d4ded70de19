//! What a slot draws: a token from its logits, then further ones for as long as they are what was guessed.
//!
//! Which token is drawn depends on logits, seed and output position alone, so tokens that come by guesses are those
//! that would have come one by one, at any temperature.

use std::sync::Arc;

use base::{ConstraintError, RequestId, RowError, SampleSpec, TokenId};
use llguidance::toktrie::SimpleVob;

use crate::constraint::{Follow, Pushed};
use crate::sample::{all_finite, forbid};

/// A slot that samples.
pub(super) struct Asked<'a> {
    pub(super) request: RequestId,
    pub(super) spec: &'a SampleSpec,
    /// Tokens at which it is sampled too, if all before them are drawn.
    pub(super) guesses: &'a [TokenId],
    /// Whether what its constraint forces may follow what is drawn.
    pub(super) forces: bool,
}

impl Asked<'_> {
    /// Positions whose logits are wanted.
    pub(super) fn rows(&self) -> usize {
        1 + self.guesses.len()
    }

    /// Whether its output must keep a constraint.
    pub(super) fn is_constrained(&self) -> bool {
        self.spec.generation.constraint.is_some()
    }

    /// Tokens that the output may still take.
    pub(super) fn left(&self) -> usize {
        let SampleSpec { generation, output_index, .. } = self.spec;
        let left = generation.output_max.0.saturating_sub(u64::from(*output_index)).max(1);
        usize::try_from(left).unwrap_or(usize::MAX)
    }
}

/// Tokens that were drawn, with those that they forced.
#[derive(Debug, PartialEq)]
pub(super) struct Drawn {
    pub(super) tokens: Vec<TokenId>,
    /// Set where the row's constraint has ended: what is forced behind them, unsampled.
    pub(super) rest: Option<Vec<u8>>,
}

/// Draws from `logits` `[1 + guesses, vocab]`, each row by `sample` at its output position.
pub(super) fn draw(
    logits: &mut [f32],
    asked: &Asked<'_>,
    follow: &mut Result<Option<Follow>, ConstraintError>,
    sample: impl Fn(&mut [f32], u32) -> Result<TokenId, RowError>,
) -> Result<Drawn, RowError> {
    // A guess may be forced instead of drawn: then nobody looks at its own logits, which say whether it is computed.
    let may_force = !asked.guesses.is_empty() && matches!(follow, Ok(Some(_)));
    if may_force && !all_finite(logits) {
        return Err(RowError::NotANumber);
    }
    let vocab = logits.len() / asked.rows();
    draw_rows(asked, |row, index| {
        let logits = &mut logits[row * vocab..][..vocab];
        draw_one(logits, follow, asked.forces, |logits| sample(logits, index))
    })
}

/// Draws by `one`, which is told the row of logits and the output position.
///
/// A row of logits behind a guess that cannot be drawn from is left to the next step, for the tokens before it are
/// sound: it fails there, unless the output ends with them.
pub(super) fn draw_rows(
    asked: &Asked<'_>,
    mut one: impl FnMut(usize, u32) -> Result<(TokenId, Pushed), RowError>,
) -> Result<Drawn, RowError> {
    let mut tokens = Vec::new();
    for row in 0..asked.rows() {
        // Forced tokens are guessed as well, or the logits behind them are not here.
        if row < tokens.len() {
            continue;
        }
        if tokens.len() >= asked.left() || tokens[..] != asked.guesses[..row] {
            break;
        }
        let index = asked.spec.output_index + row as u32;
        match one(row, index) {
            Err(error) if row == 0 => return Err(error),
            Err(_) => break,
            Ok((token, Pushed::Ended(rest))) => {
                tokens.push(token);
                return Ok(Drawn { tokens, rest: Some(rest) });
            }
            Ok((token, Pushed::Open(forced))) => {
                tokens.push(token);
                tokens.extend(forced);
            }
        }
    }
    Ok(Drawn { tokens, rest: None })
}

/// Draws a token among those that the row's constraint allows, and tells the constraint.
fn draw_one(
    logits: &mut [f32],
    follow: &mut Result<Option<Follow>, ConstraintError>,
    forces: bool,
    sample: impl FnOnce(&mut [f32]) -> Result<TokenId, RowError>,
) -> Result<(TokenId, Pushed), RowError> {
    if let Some(allowed) = allowed(follow)? {
        forbid(logits, |token| (token.0 as usize) < allowed.len() && allowed.is_allowed(token.0));
    }
    let token = sample(logits)?;
    pushed(follow, token, forces)
}

/// The tokens that the row's constraint allows next; `None` where it has none.
pub(super) fn allowed(
    follow: &mut Result<Option<Follow>, ConstraintError>,
) -> Result<Option<Arc<SimpleVob>>, RowError> {
    match follow.as_mut() {
        Ok(None) => Ok(None),
        Ok(Some(follow)) => follow.allowed().map(Some).map_err(failed),
        Err(error) => Err(failed(error.clone())),
    }
}

/// The token, and what it did to its row's constraint.
pub(super) fn pushed(
    follow: &mut Result<Option<Follow>, ConstraintError>,
    token: TokenId,
    forces: bool,
) -> Result<(TokenId, Pushed), RowError> {
    let Some(follow) = follow.as_mut().map_err(|error| failed(error.clone()))? else {
        return Ok((token, Pushed::Open(Vec::new())));
    };
    let pushed = if forces { follow.push(token) } else { follow.take(token) };
    Ok((token, pushed.map_err(failed)?))
}

fn failed(error: ConstraintError) -> RowError {
    RowError::Failed(format!("its constraint cannot be kept: {error}"))
}
