//! Outputs held to a form: constraints compiled to token masks over the model's vocabulary (DESIGN 6).
//!
//! The grammars and masks are those of llguidance; here stand what it is asked, its bounds, and when a row is
//! over: as soon as nothing is left to decide. Who has a constraint compiled keeps the result. Knows nothing
//! of logits, batches or HTTP.

mod ebnf;
mod excerpt;
mod follow;
mod grammar;
mod items;
mod lark;
#[cfg(test)]
mod opening_tests;
mod state;
#[cfg(test)]
mod tag_tests;
#[cfg(test)]
mod tests;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use base::{
    Compiled, Constraint, ConstraintCompiler, ConstraintError, ExcerptSource, Generation, Items, TokenId,
};
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{ParserFactory, panic_utils};

use excerpt::Excerpt;
use follow::Follower;
pub(crate) use follow::Pushed;
use items::{ItemList, TEXTS_MAX};
pub(crate) use state::ConstraintState;
use state::{FormState, RowVocabulary};

use crate::text::TokenText;

/// Nodes of the expressions a constraint starts with: bounds the time to compile it (50 a microsecond).
const START_NODES_MAX: u64 = 1_000_000;
/// Work of a lexer for one mask, in nodes.
const MASK_NODES_MAX: u64 = 200_000;
/// States of a lexer, of 1 to 2 kB each.
const STATES_MAX: usize = 8_000;
/// Symbols of a grammar.
const SYMBOLS_MAX: usize = 100_000;
/// What may come next at one place, in symbols: an optional property takes four.
const OPEN_MAX: usize = 8_000;
/// Tokens that are tried of a new constraint: what it cannot keep to shows at its beginning, mostly.
const TRIED: usize = 8;
/// A token of this byte marks special tokens to llguidance; no text holds it.
const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Said of a constraint that nothing can keep to.
const NO_TEXT: &str = "allows no text: does something in it require itself without an end?";

/// Compiles constraints for one model.
pub struct Constraints {
    text: Arc<dyn TokenText>,
    ends: Vec<TokenId>,
    /// Made with the first constraint: it sorts the whole vocabulary.
    factory: OnceLock<Result<ParserFactory, ConstraintError>>,
}

impl Constraints {
    /// Constraints on the outputs of a model with these end tokens.
    pub fn new(text: Arc<dyn TokenText>, ends: Vec<TokenId>) -> Self {
        Self { text, ends, factory: OnceLock::new() }
    }

    /// A row's way through its constraint, at its start; `None` where it has none. Compiles what was not
    /// compiled.
    pub(crate) fn start(&self, generation: &Generation) -> Result<Option<ConstraintState>, ConstraintError> {
        let Some(constraint) = &generation.constraint else { return Ok(None) };
        match generation.compiled.get::<ConstraintState>() {
            Some(start) => Ok(Some(start.fresh())),
            None => self.compile_start(constraint).map(Some),
        }
    }

    /// What all outputs of a constraint that was compiled begin with: nobody draws it.
    pub(crate) fn opening(generation: &Generation) -> &[TokenId] {
        let compiled = generation.constraint.as_ref().and(generation.compiled.get::<ConstraintState>());
        compiled.map_or(&[], ConstraintState::opening)
    }

    /// A row behind that.
    pub(crate) fn behind_opening(generation: &Generation) -> Option<ConstraintState> {
        generation.compiled.get::<ConstraintState>()?.behind_opening()
    }

    /// The start of a constraint.
    fn compile_start(&self, constraint: &Constraint) -> Result<ConstraintState, ConstraintError> {
        let leading_space = self.text.drops_leading_space();
        let factory = self.factory()?;
        let form = match constraint {
            Constraint::Excerpt { of: ExcerptSource::Field(name), .. } => {
                return Err(ConstraintError(format!(
                    "copies from column `{name}`, which no row has filled in"
                )));
            }
            Constraint::Reading { field, .. } => {
                return Err(ConstraintError(format!("reads column `{field}`, which no row has filled in")));
            }
            Constraint::Excerpt { of: ExcerptSource::Text(text), otherwise } => {
                let excerpt = Excerpt::new(text, otherwise.as_deref());
                if excerpt.is_empty() {
                    return Err(ConstraintError("copies from a text without a word".into()));
                }
                FormState::Excerpt(Follower::new(excerpt, leading_space))
            }
            Constraint::Items(items) => {
                check_items(items)?;
                FormState::Items(Follower::new(ItemList::new(items), leading_space))
            }
            constraint => {
                let grammar = grammar::grammar(constraint, leading_space)?;
                // Rules and references nest as far as their bytes allow.
                let made = lark::on_deep_stack(|| factory.create_parser(grammar))?;
                let mut parser = made.map_err(|error| reason(&error))?;
                parser.start_without_prompt();
                FormState::Grammar(Box::new(parser))
            }
        };
        let vocabulary = RowVocabulary { env: factory.tok_env().clone(), ends: self.ends.as_slice().into() };
        ConstraintState::new(form, vocabulary)
    }

    /// Writes the first tokens of an output: what fails here would fail every row.
    fn try_out(&self, start: &ConstraintState) -> Result<(), ConstraintError> {
        let mut state = start.fresh();
        for count in 0..TRIED {
            let allowed = state.allowed()?;
            let token = allowed.iter().map(TokenId).find(|token| !self.ends.contains(token));
            match token {
                None if count == 0 => {
                    return Err(ConstraintError(NO_TEXT.into()));
                }
                None => break,
                Some(token) => match state.push(token)? {
                    Pushed::Open(_) => {}
                    Pushed::Ended(_) => break,
                },
            }
        }
        Ok(())
    }

    fn factory(&self) -> Result<&ParserFactory, ConstraintError> {
        self.factory.get_or_init(|| self.make_factory()).as_ref().map_err(Clone::clone)
    }

    fn make_factory(&self) -> Result<ParserFactory, ConstraintError> {
        let Some(end) = self.ends.first() else {
            return Err(ConstraintError("the model has no end token".into()));
        };
        let ids_end = self.text.ids_end();
        let words: Vec<Vec<u8>> = (0..ids_end).map(|id| self.word(TokenId(id))).collect();
        let made = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            let ends: Vec<u32> = self.ends.iter().map(|end| end.0).collect();
            let trie = TokTrie::from(&TokRxInfo::new(ids_end, end.0), &words).with_eos_tokens(&ends);
            let env: TokEnv = Arc::new(Vocabulary { trie, text: Arc::clone(&self.text) });
            let mut factory = ParserFactory::new_simple(&env)?;
            factory.quiet();
            let limits = factory.limits_mut();
            limits.initial_lexer_fuel = START_NODES_MAX;
            limits.step_lexer_fuel = MASK_NODES_MAX;
            limits.max_lexer_states = STATES_MAX;
            limits.max_items_in_row = OPEN_MAX;
            limits.max_grammar_size = SYMBOLS_MAX;
            limits.verbose_errors = false;
            Ok(factory)
        }));
        made.map_err(|error| reason(&error))
    }

    /// The bytes of a token as a grammar sees it; none for end tokens and what no text can hold.
    fn word(&self, token: TokenId) -> Vec<u8> {
        let bytes = if self.ends.contains(&token) { None } else { self.text.bytes(token) };
        bytes.filter(|bytes| !bytes.contains(&MARKER)).unwrap_or_default()
    }
}

/// The model's tokens as llguidance sees them. Forced text is cut as the model's own tokenizer cuts it: that
/// is what the model was trained on.
struct Vocabulary {
    trie: TokTrie,
    text: Arc<dyn TokenText>,
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        let encode = |text: &str| self.text.encode(text).into_iter().map(|token| token.0).collect();
        let tokens = self.trie.tokenize_with_greedy_fallback(bytes, encode);
        // A tokenizer may normalise; what is forced must be written as it is.
        if self.trie.decode_raw(&tokens) == bytes { tokens } else { self.trie.greedy_tokenize(bytes) }
    }
}

impl ConstraintCompiler for Constraints {
    fn compile(&self, constraint: &Constraint) -> Result<Compiled, ConstraintError> {
        if matches!(constraint, Constraint::Excerpt { of: ExcerptSource::Field(_), .. }) {
            // Each row begins its own; what all of them need is made now, and in no step.
            self.factory()?;
            return Ok(Compiled::default());
        }
        if let Constraint::Reading { otherwise, .. } = constraint {
            // For the rows whose texts are not understood; the others list what theirs say.
            return otherwise.as_ref().map_or(Ok(Compiled::default()), |otherwise| self.compile(otherwise));
        }
        let start = self.compile_start(constraint)?;
        self.try_out(&start)?;
        let start = start.with_opening();
        let opening = start.opening().to_vec();
        Ok(Compiled::new(start).with_opening(&opening))
    }
}

/// Refuses items that no list can be made of.
fn check_items(items: &Items) -> Result<(), ConstraintError> {
    let Items { texts, separator, count_min, count_max, chars_max } = items;
    let refuse = |reason: String| Err(ConstraintError(reason));
    if let Some(texts) = texts {
        if texts.is_empty() || texts.len() > TEXTS_MAX {
            return refuse(format!("must have 1 to {TEXTS_MAX} items, has {}", texts.len()));
        }
        if texts.iter().any(String::is_empty) {
            return refuse("has an empty item".into());
        }
    } else if *chars_max == 0 {
        return refuse("must let an item have a character".into());
    }
    if separator.is_empty() || separator.len() > usize::from(u8::MAX) {
        return refuse(format!("must have a separator of 1 to {} bytes, has {}", u8::MAX, separator.len()));
    }
    if *count_min == 0 || count_min > count_max {
        return refuse(format!(
            "must have 1 item or more, and no fewer most than least: {count_min} to {count_max}"
        ));
    }
    Ok(())
}

/// The first line of a reason, shortened: llguidance may add its state, and a trace of a panic it caught.
/// Where that line only announces one (a pattern's, which is drawn below it), the line that says it too.
fn reason(error: &impl std::fmt::Display) -> ConstraintError {
    const CHARS_MAX: usize = 300;
    let text = error.to_string();
    // Its arithmetic is checked: what overflows stops there.
    if text.starts_with("panic: ") {
        return ConstraintError("cannot be compiled: a number in it is too large or too fine".into());
    }
    if let Some(limit) = limit(&text) {
        return ConstraintError(limit);
    }
    let mut lines = text.lines().map(str::trim);
    let mut line = lines.next().unwrap_or_default().trim_end_matches("<non-verbose/>").to_owned();
    if let (true, Some(message)) = (line.ends_with(':'), lines.find_map(|line| line.strip_prefix("error:"))) {
        line += message;
    }
    ConstraintError(line.chars().take(CHARS_MAX).collect())
}

/// Which limit was reached, in words that say what of a constraint is too large.
fn limit(error: &str) -> Option<String> {
    let has = |part: &str| error.contains(part);
    if has("NoExtension") {
        return Some(NO_TEXT.into());
    }
    if has("too many states") {
        return Some(format!("is too large: what it repeats takes more than {STATES_MAX} states"));
    }
    if has("items; max is") {
        return Some(format!(
            "leaves too much open at one place: more than {OPEN_MAX} symbols may come next (an optional property \
             takes four)"
        ));
    }
    if has("Too many items") {
        return Some(
            "requires more text than can be followed: does something in it require itself without an end?"
                .into(),
        );
    }
    has("fuel").then(|| "is too large to be followed token by token".into())
}
