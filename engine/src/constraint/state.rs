//! One row's way through a compiled constraint.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use base::{ConstraintError, TokenId};
use llguidance::toktrie::{SimpleVob, TokEnv};
use llguidance::{TokenParser, panic_utils};

use super::excerpt::Excerpt;
use super::follow::{Follower, Pushed};
use super::items::ItemList;
use super::reason;

/// Tokens that are forced at once: what a step has to compute of a row is bounded. More wait for the next.
const FORCED_MAX: usize = 32;

/// Where a row stands in its constraint.
pub(crate) struct ConstraintState {
    form: FormState,
    vocabulary: RowVocabulary,
    /// Bytes of the output so far.
    written: Vec<u8>,
    /// What the first token may be: the same for all rows of the constraint.
    first: Option<Arc<SimpleVob>>,
    /// What all its rows begin with; a row itself needs to know no more of it.
    opening: Option<Arc<Opening>>,
}

/// Tokens that nobody draws at the start of an output, and where its row stands behind them.
struct Opening {
    tokens: Vec<TokenId>,
    behind: ConstraintState,
}

/// Who says what may follow.
pub(super) enum FormState {
    Grammar(Box<TokenParser>),
    Excerpt(Follower<Excerpt>),
    Items(Follower<ItemList>),
}

/// The tokens that rows are written in.
#[derive(Clone)]
pub(super) struct RowVocabulary {
    pub(super) env: TokEnv,
    pub(super) ends: Arc<[TokenId]>,
}

impl ConstraintState {
    /// The start of a constraint.
    pub(super) fn new(mut form: FormState, vocabulary: RowVocabulary) -> Result<Self, ConstraintError> {
        let first = allowed(&mut form, &vocabulary)?;
        Ok(Self { form, vocabulary, written: Vec::new(), first: Some(Arc::new(first)), opening: None })
    }

    /// The same start, which knows what all rows begin with.
    pub(super) fn with_opening(self) -> Self {
        let opening = self.find_opening().map(Arc::new);
        Self { opening, ..self }
    }

    /// Tokens that all rows begin with; none where the first is to be drawn.
    pub(crate) fn opening(&self) -> &[TokenId] {
        self.opening.as_ref().map_or(&[], |opening| &opening.tokens)
    }

    /// Where a row stands behind the opening, if there is one.
    pub(crate) fn behind_opening(&self) -> Option<Self> {
        self.opening.as_ref().map(|opening| opening.behind.fresh())
    }

    /// What is forced at the start, as [`Self::push`] would find it behind the first token. Where nothing at all is to
    /// be decided there is none: the first token then ends the output.
    fn find_opening(&self) -> Option<Opening> {
        let mut behind = self.fresh();
        behind.first = None;
        let FormState::Grammar(parser) = &mut behind.form else { return None };
        let rest = panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(decided_rest(parser))));
        if rest.ok()?.is_some() {
            return None;
        }
        let tokens = behind.force().ok().filter(|tokens| !tokens.is_empty())?;
        behind.first = Some(Arc::new(allowed(&mut behind.form, &behind.vocabulary).ok()?));
        Some(Opening { tokens, behind })
    }

    /// The same place for another row. Rows share no caches, so that none waits for, or breaks with, another.
    pub(super) fn fresh(&self) -> Self {
        let form = match &self.form {
            FormState::Grammar(parser) => FormState::Grammar(Box::new(parser.deep_clone())),
            FormState::Excerpt(follower) => FormState::Excerpt(follower.clone()),
            FormState::Items(follower) => FormState::Items(follower.clone()),
        };
        let (vocabulary, written) = (self.vocabulary.clone(), self.written.clone());
        Self { form, vocabulary, written, first: self.first.clone(), opening: None }
    }

    /// The tokens that may come next, end tokens among them where the output may end here. Never none.
    pub(crate) fn allowed(&mut self) -> Result<Arc<SimpleVob>, ConstraintError> {
        match &self.first {
            Some(first) => Ok(Arc::clone(first)),
            None => allowed(&mut self.form, &self.vocabulary).map(Arc::new),
        }
    }

    /// Bytes of the output so far.
    pub(crate) fn written(&self) -> &[u8] {
        &self.written
    }

    /// Bytes of a token; none of one that ends the output.
    pub(crate) fn bytes(&self, token: u32) -> &[u8] {
        self.vocabulary.bytes(token)
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
        let FormState::Grammar(parser) = &mut self.form else { return Ok(Vec::new()) };
        let forced = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            let mut forced = parser.compute_ff_tokens();
            forced.truncate(FORCED_MAX);
            forced.iter().try_for_each(|token| parser.consume_token(*token).map(|_| ()))?;
            Ok(forced)
        }));
        let forced = forced.map_err(|error| reason(&error))?;
        forced.iter().for_each(|token| self.written.extend_from_slice(self.vocabulary.bytes(*token)));
        Ok(forced.into_iter().map(TokenId).collect())
    }

    /// Takes the token that came and nothing more.
    pub(crate) fn take(&mut self, token: TokenId) -> Result<Pushed, ConstraintError> {
        self.first = None;
        let bytes = self.vocabulary.bytes(token.0);
        self.written.extend_from_slice(bytes);
        let parser = match &mut self.form {
            FormState::Grammar(parser) => parser,
            FormState::Excerpt(follower) => return follower.take(bytes).map_err(ConstraintError),
            FormState::Items(follower) => return follower.take(bytes).map_err(ConstraintError),
        };
        let pushed = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            parser.consume_token(token.0)?;
            if parser.check_stop()? {
                return Ok(Pushed::Ended(Vec::new()));
            }
            Ok(decided_rest(parser).map_or_else(|| Pushed::Open(Vec::new()), Pushed::Ended))
        }));
        pushed.map_err(|error| reason(&error))
    }
}

impl RowVocabulary {
    fn bytes(&self, token: u32) -> &[u8] {
        self.env.tok_trie().token(token)
    }
}

/// What follows where nothing is left to decide.
fn decided_rest(parser: &mut TokenParser) -> Option<Vec<u8>> {
    let forced = parser.force_bytes();
    let is_complete = parser.parser.is_accepting() && !parser.parser.can_advance();
    is_complete.then_some(forced)
}

/// The tokens that may come next.
fn allowed(
    form: &mut FormState,
    RowVocabulary { env, ends }: &RowVocabulary,
) -> Result<SimpleVob, ConstraintError> {
    let mask = match form {
        FormState::Grammar(parser) => panic_utils::catch_unwind(AssertUnwindSafe(|| parser.compute_mask())),
        FormState::Excerpt(follower) => Ok(follower.allowed(env, ends)),
        FormState::Items(follower) => Ok(follower.allowed(env, ends)),
    };
    match mask {
        Ok(mask) if !mask.is_zero() => Ok(mask),
        Ok(_) => Err(ConstraintError("no token of the model continues the constraint".into())),
        Err(error) => Err(reason(&error)),
    }
}
