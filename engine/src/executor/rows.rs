//! What an executor keeps of rows: their text so far, and where they stand in their constraints.
//!
//! Rows that another executor began are brought up to where it left off. It knows no logits.

use std::collections::HashMap;
use std::sync::Arc;

use base::{
    ConstraintError, End, Generation, Logprob, RequestId, RowError, RowOutcome, SampleSpec, Sampled, Slot,
    TokenId, TokenLogprob,
};

use super::adjuster::Adjuster;
use super::answer_probability::{AnswerProbability, is_listed};
use super::distribution::DrawnLogprob;
use super::sampled_slot::{Drawn, DrawnToken, SampledSlot};
use crate::adjust::TokenCounts;
use crate::constraint::{ConstraintState, Constraints};
use crate::stop::{Released, StopText};
use crate::text::{DecodeState, TokenText};

/// Where a row stands in its constraint, if it has one; or why it cannot be kept.
pub(super) type RowConstraint = Result<Option<ConstraintState>, RowError>;

/// Rows that are not yet retired.
pub(super) struct RowStates {
    text: Arc<dyn TokenText>,
    ends: Vec<TokenId>,
    constraints: Arc<Constraints>,
    outputs: HashMap<RequestId, RowState>,
}

/// One row so far: its text, and where it stands in its constraint.
struct RowState {
    decode: DecodeState,
    stop: StopText,
    constraint: Option<ConstraintState>,
    /// What its answer's probability is made of so far, where it is one of a list and that is known.
    answer: Option<AnswerProbability>,
    /// Its tokens, where penalties count them.
    counts: Option<TokenCounts>,
    /// How the tokens are written that are told beside each of its own, where it names any.
    named: HashMap<TokenId, Option<WrittenToken>>,
}

/// A token as it is told: its text, and its bytes.
type WrittenToken = (String, Vec<u8>);

impl RowState {
    /// A row that has said nothing.
    fn new(text: &dyn TokenText, spec: &SampleSpec) -> Self {
        let adjustments = spec.generation.adjustments.as_ref();
        let is_counted = adjustments.is_some_and(|adjustments| adjustments.needs_output());
        let named = spec.generation.logprob_tokens.iter().map(|token| (*token, written(text, *token)));
        Self {
            decode: text.start(),
            stop: StopText::default(),
            constraint: None,
            answer: None,
            counts: is_counted.then(|| TokenCounts::new(spec.prompt.as_deref())),
            named: named.collect(),
        }
    }

    /// The text that is final with a token of the output, the `nth` from 1, and which stop string ended it.
    fn say(
        &mut self,
        text: &dyn TokenText,
        (token, nth): (TokenId, u64),
        generation: &Generation,
    ) -> Released {
        if let Some(counts) = &mut self.counts {
            counts.push(token);
        }
        let mut said = text.push(&mut self.decode, token);
        if generation.shows_special
            && let Some(written) = text.special(token)
        {
            said = text.flush(&mut self.decode) + &written;
        }
        let stops: &[String] = if nth <= generation.output_min().0 { &[] } else { &generation.stop };
        self.stop.push(&said, stops, generation.shows_stop)
    }
}

impl RowStates {
    /// None yet; `ends` are the model's own end tokens.
    pub(super) fn new(text: Arc<dyn TokenText>, ends: Vec<TokenId>) -> Self {
        let constraints = Arc::new(Constraints::new(Arc::clone(&text), ends.clone()));
        Self { text, ends, constraints, outputs: HashMap::new() }
    }

    pub(super) fn constraints(&self) -> Arc<Constraints> {
        Arc::clone(&self.constraints)
    }

    pub(super) fn len(&self) -> usize {
        self.outputs.len()
    }

    /// Token ids from here on are padding of the vocabulary.
    pub(super) fn ids_end(&self) -> usize {
        self.text.ids_end() as usize
    }

    /// What says tokens.
    pub(super) fn text(&self) -> &dyn TokenText {
        &*self.text
    }

    /// Forgets rows.
    pub(super) fn retire(&mut self, requests: &[RequestId]) {
        for request in requests {
            self.outputs.remove(request);
        }
    }

    /// Brings rows that it has not seen to where their output stands. Their text up to there is out already.
    pub(super) fn resume(&mut self, slots: &[Slot]) {
        for slot in slots {
            let Some(spec) = slot.sample.as_ref().filter(|spec| !spec.already_generated.is_empty()) else {
                continue;
            };
            if !self.outputs.contains_key(&slot.request) {
                let output = self.resumed(spec);
                self.outputs.insert(slot.request, output);
            }
        }
    }

    /// Where a row stands that has said what it has. One that its constraint cannot have let through is
    /// without its constraint then, and fails alone when it samples.
    fn resumed(&self, spec: &SampleSpec) -> RowState {
        let mut row = RowState::new(&*self.text, spec);
        let mut state = self.constraints.start(&spec.generation).ok().flatten();
        for (nth, token) in (1..).zip(&spec.already_generated) {
            row.say(&*self.text, (*token, nth), &spec.generation);
            state = state.and_then(|mut state| state.take(*token).is_ok().then_some(state));
        }
        RowState { constraint: state, ..row }
    }

    /// What a slot does to its logits before it draws, where it does anything.
    pub(super) fn adjuster<'a>(&self, slot: &SampledSlot<'a>) -> Option<Adjuster<'a>> {
        let row = self.outputs.get(&slot.request);
        Adjuster::new(slot, row.and_then(|row| row.counts.as_ref()), &self.ends)
    }

    /// What became of a slot: its constraint is kept wherever it stands.
    pub(super) fn outcome(
        &mut self,
        slot: &SampledSlot<'_>,
        drawn: Result<Drawn, RowError>,
        state: RowConstraint,
    ) -> RowOutcome {
        let state = state.ok().flatten();
        let result = match drawn {
            Ok(drawn) => Ok(self.emit(slot, drawn, state)),
            Err(error) => {
                // It may be drawn again without guesses.
                self.outputs.entry(slot.request).and_modify(|output| output.constraint = state);
                Err(error)
            }
        };
        RowOutcome { request: slot.request, result }
    }

    /// How many of a slot's guesses nobody has to look at, because its row has said nothing and can begin with nothing
    /// else.
    pub(super) fn opening_len(&self, slot: &Slot) -> usize {
        let Some(spec) = slot.sample.as_ref().filter(|spec| spec.output_index == 0) else { return 0 };
        let guesses = &slot.input[slot.input.len() - slot.guesses as usize..];
        let opening = Constraints::opening(&spec.generation);
        let is_open = guesses.starts_with(opening) && !self.outputs.contains_key(&slot.request);
        if is_open { opening.len() } else { 0 }
    }

    /// Where a slot's row stands in its constraint; [`Self::outcome`] takes it back.
    pub(super) fn take_constraint(&mut self, slot: &SampledSlot<'_>) -> RowConstraint {
        let spec = slot.spec;
        match self.outputs.get_mut(&slot.request) {
            Some(_) if spec.generation.constraint.is_none() => Ok(None),
            Some(output) => match output.constraint.take() {
                Some(state) => Ok(Some(state)),
                None => Err(RowError::Failed("where it stood in its constraint was lost".into())),
            },
            None if !slot.opening.is_empty() => Ok(Constraints::behind_opening(&spec.generation)),
            None => self.constraints.start(&spec.generation).map_err(refused),
        }
    }

    /// The text of what was drawn, and whether the row ends with it: what stands behind an end is dropped.
    fn emit(&mut self, slot: &SampledSlot<'_>, drawn: Drawn, state: Option<ConstraintState>) -> Sampled {
        let generation = &slot.spec.generation;
        let is_free = state.is_none();
        let output = self.outputs.entry(slot.request).or_insert_with(|| RowState {
            answer: is_listed(generation.constraint.as_ref()).then(AnswerProbability::default),
            ..RowState::new(&*self.text, slot.spec)
        });
        output.constraint = state;
        let left = slot.left();
        let obeys_end = !generation.ignore_end || !is_free;
        let (mut tokens, mut logprobs, mut text, mut end) = (Vec::new(), Vec::new(), String::new(), None);
        for DrawnToken { token, is_forced, logprob, probabilities } in drawn.tokens.into_iter().take(left) {
            tokens.push(token);
            if slot.top_logprobs().is_some() {
                let is_each = generation.shows_special || generation.logprobs_of_each;
                let has_text = self.text.bytes(token).is_some();
                let logprob = logprob.filter(|_| is_each || has_text);
                let is_hidden = !has_text && !generation.shows_special;
                let written = |token: TokenId| match output.named.get(&token) {
                    Some(known) => known.clone(),
                    None => written(&*self.text, token),
                };
                logprobs.push(logprob.and_then(|drawn| told(written, (token, is_hidden), drawn)));
            }
            if !is_forced && probabilities.is_empty() {
                output.answer = None;
            } else if let Some(answer) = &mut output.answer {
                answer.push(&self.text.bytes(token).unwrap_or_default(), probabilities);
            }
            let is_end = obeys_end && self.ends.contains(&token);
            if is_end || generation.stop_tokens.contains(&token) {
                if generation.shows_stop {
                    text += &output.say(&*self.text, (token, 0), generation).text;
                }
                end = Some(if is_end { End::Stop } else { End::StopToken(token) });
                break;
            }
            let nth = u64::from(slot.spec.output_index) + tokens.len() as u64;
            let released = output.say(&*self.text, (token, nth), generation);
            text += &released.text;
            if let Some(place) = released.stop {
                return Sampled {
                    tokens,
                    logprobs,
                    text,
                    end: Some(End::StopText(place)),
                    probability: None,
                };
            }
        }
        let mut probability = None;
        if let Some(constraint) = &generation.constraint
            && (end.is_some() || drawn.rest.is_some())
        {
            let (answer, rest) = (output.answer.take(), drawn.rest.as_deref().unwrap_or_default());
            probability = answer
                .and_then(|answer| answer.probability(rest, constraint, |token| self.text.bytes(token)));
        }
        if end.is_none() {
            if let Some(rest) = drawn.rest {
                if let Some(Some(last)) = logprobs.last_mut() {
                    say_with(&mut last.chosen, &rest);
                }
                output.decode.pending.extend(rest);
                end = Some(End::Stop);
            } else if tokens.len() == left {
                end = Some(End::Length);
            }
        }
        if end.is_some() {
            let rest = self.text.flush(&mut output.decode);
            let released = output.stop.push(&rest, &generation.stop, generation.shows_stop);
            text += &released.text;
            if let Some(place) = released.stop {
                end = Some(End::StopText(place));
            }
            text += &output.stop.flush();
        }
        Sampled { tokens, logprobs, text, end, probability }
    }
}

/// Tells the rest of an answer with the token that decided it, which is as likely as all of it: what its constraint forces
/// behind that token is never computed.
fn say_with(decided: &mut Logprob, rest: &[u8]) {
    if let Some(bytes) = &mut decided.bytes {
        bytes.extend_from_slice(rest);
        decided.token = String::from_utf8_lossy(bytes).into_owned();
    }
}

/// How a token is told: a special one as it is written; nothing of one without text.
fn written(text: &dyn TokenText, token: TokenId) -> Option<WrittenToken> {
    let bytes = text.bytes(token).or_else(|| text.special(token).map(String::into_bytes))?;
    Some((String::from_utf8_lossy(&bytes).into_owned(), bytes))
}

/// How likely a token was, as it is told; nothing of one that is not `written`. `is_hidden`: whether it is left out of
/// the answer's text.
fn told(
    written: impl Fn(TokenId) -> Option<WrittenToken>,
    (token, is_hidden): (TokenId, bool),
    drawn: DrawnLogprob,
) -> Option<TokenLogprob> {
    let one = |token, logprob: f32| {
        let (shown, bytes) = written(token)?;
        Some(Logprob { id: Some(token), token: shown, logprob: logprob.into(), bytes: Some(bytes) })
    };
    let DrawnLogprob { logprob, top } = drawn;
    let top = top.into_iter().filter_map(|(token, logprob)| one(token, logprob)).collect();
    Some(TokenLogprob { chosen: one(token, logprob)?, is_hidden, top })
}

/// A constraint that cannot be kept: whoever sent it can mend that.
pub(super) fn refused(error: ConstraintError) -> RowError {
    RowError::Refused(format!("its constraint cannot be kept: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use base::TokenCount;

    use super::*;

    /// Text of one byte a token, which counts how often each is asked for.
    #[derive(Default)]
    struct CountedText(Mutex<HashMap<TokenId, usize>>);

    impl TokenText for CountedText {
        fn push(&self, _: &mut DecodeState, _: TokenId) -> String {
            "a".to_owned()
        }

        fn flush(&self, _: &mut DecodeState) -> String {
            String::new()
        }

        fn bytes(&self, token: TokenId) -> Option<Vec<u8>> {
            *self.0.lock().expect("no holder panics").entry(token).or_default() += 1;
            Some(vec![u8::try_from(token.0).ok()?])
        }

        fn encode(&self, _: &str) -> Vec<TokenId> {
            Vec::new()
        }

        fn ids_end(&self) -> u32 {
            256
        }
    }

    #[test]
    fn named_tokens_are_written_once_for_a_row() {
        let [named, drawn] = [u32::from(b'n'), u32::from(b'd')].map(TokenId);
        let generation = Generation {
            output_max: TokenCount(9),
            logprobs: Some(0),
            logprob_tokens: vec![named],
            ..Generation::default()
        };
        let generation = Arc::new(generation);
        let text = Arc::new(CountedText::default());
        let mut rows = RowStates::new(Arc::clone(&text) as Arc<dyn TokenText>, Vec::new());
        for output_index in 0..3 {
            let spec = SampleSpec {
                generation: Arc::clone(&generation),
                seed: 1,
                output_index,
                already_generated: Vec::new(),
                prompt: None,
            };
            let request = RequestId(4);
            let slot = SampledSlot { request, spec: &spec, opening: &[], guesses: &[], forces: false };
            let logprob = DrawnLogprob { logprob: -1.0, top: vec![(drawn, -1.0), (named, -2.0)] };
            let token = DrawnToken { logprob: Some(logprob), ..DrawnToken::plain(drawn) };
            let outcome = rows.outcome(&slot, Ok(Drawn { tokens: vec![token], rest: None }), Ok(None));
            let told = outcome.result.expect("it is drawn").logprobs;
            let told = told[0].as_ref().expect("it is told");
            let texts: Vec<&str> = told.top.iter().map(|one| one.token.as_str()).collect();
            assert_eq!((told.chosen.token.as_str(), texts), ("d", vec!["d", "n"]));
        }
        let asked = text.0.lock().expect("no holder panics");
        assert_eq!(asked.get(&named), Some(&1));
    }
}
