//! What replies tell of prompts: their text in front of answers (`echo`), and how likely their tokens were (`echo` with
//! `logprobs`, and vLLM's `prompt_logprobs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{End, Generation, PromptToken, TokenId};
use serde::Serialize;
use serving::error::RequestError;
use serving::model::Model;
use serving::relquery_state::{AnswerRow, SCORES_MAX};
use utoipa::ToSchema;

use super::Common;
use super::logprobs::{CompletionLogprobs, LikelyTokens, TOP_MAX, name_of, within};
use super::text_offsets::TextOffsets;
use super::token_ids;
use crate::json::JsonFields;
use crate::wire::relquery::finish_reason;

/// How many of the most likely tokens are told beside each of a prompt's.
const FIELD: &str = "prompt_logprobs";
/// Whether the prompt is told in front of its answer.
const ECHO: &str = "echo";

/// Where not all that run a model's rows say how likely the tokens of prompts are.
const NOT_HERE: &str = "is for models that local engines and servers of dialect \"vllm\" alone run: no others say \
    how likely a prompt's tokens are";

/// Bytes of a character at most.
const CHARACTER_BYTES_MAX: usize = 4;

/// Parts of characters in a row of which the bytes are looked for.
const BROKEN_MAX: usize = 64;

/// What a request wants to be told of its prompts, and how tokens are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptFields {
    /// Their texts, in front of their answers.
    pub echo: bool,
    /// Nothing of the answers.
    pub hides_answer: bool,
    /// With their texts how likely their tokens were, each beside so many of the likeliest.
    pub echoed_logprobs: Option<u32>,
    /// The same in vLLM's shape.
    pub prompt_logprobs: Option<u32>,
    /// Whether tokens with log probabilities are named by their ids, those of answers too.
    pub names_ids: bool,
}

impl PromptFields {
    /// Takes `echo`, with which alone `max_tokens` may be 0: the one token that a model says then is
    /// counted and not told.
    pub(super) fn take_echo(fields: &mut JsonFields) -> Result<Self, RequestError> {
        let echo = fields.bool(ECHO)?.unwrap_or(false);
        let hides_answer = echo && fields.count("max_tokens") == Some(0);
        if hides_answer {
            fields.insert("max_tokens", 1.into());
        }
        Ok(Self { echo, hides_answer, ..Self::default() })
    }

    /// The same with log probabilities, which the rows are then asked for.
    pub(super) fn with_logprobs(
        self,
        fields: &mut JsonFields,
        common: &mut Common,
        model: &Model,
    ) -> Result<Self, RequestError> {
        let prompt_logprobs = take(fields, common.stream, model)?;
        let generation = Arc::make_mut(&mut common.sampling.generation);
        let echoed_logprobs = generation.logprobs.filter(|_| self.echo);
        if echoed_logprobs.is_some() && !model.can_score_prompts() {
            return fields.bad(ECHO, format!("with `logprobs` {NOT_HERE}"));
        }
        token_ids::check_scored(!self.hides_answer, &generation.logprob_tokens)?;
        ask(generation, prompt_logprobs.max(echoed_logprobs));
        Ok(Self { echoed_logprobs, prompt_logprobs, names_ids: common.names_ids, ..self })
    }
}

/// Takes `prompt_logprobs`.
pub(super) fn take(
    fields: &mut JsonFields,
    is_stream: bool,
    model: &Model,
) -> Result<Option<u32>, RequestError> {
    let Some(top) = fields.integer(FIELD, 0, TOP_MAX)? else { return Ok(None) };
    if is_stream {
        return fields.bad(FIELD, "is not told in streams: `stream` must be false");
    }
    if !model.can_score_prompts() {
        return fields.bad(FIELD, NOT_HERE);
    }
    Ok(Some(within(top)))
}

/// Asks for the log probabilities of a prompt. Who scores it with its answer counts on one for each token.
pub(super) fn ask(generation: &mut Generation, top: Option<u32>) {
    generation.prompt_logprobs = top;
    generation.logprobs_of_each |= top.is_some();
}

/// Takes the field where replies have no place for it.
pub(crate) fn refuse(fields: &mut JsonFields) -> Result<(), RequestError> {
    match fields.take(FIELD) {
        None => Ok(()),
        Some(_) => {
            fields.bad(FIELD, "is for chats and completions: this route's replies have no place for it")
        }
    }
}

/// How many log probabilities are told of prompts; refuses too many. `tokens`: of the prompts of all rows; `top`: how
/// many of the likeliest beside each.
pub(crate) fn check_told(tokens: u64, top: Option<u32>, is_echo: bool) -> Result<u64, RequestError> {
    let told = top.map_or(0, |top| tokens.saturating_mul(u64::from(top) + 1));
    if told <= SCORES_MAX {
        return Ok(told);
    }
    let reason = format!(
        "asks for {told} log probabilities of prompts' tokens, the likeliest beside each counted; at most {SCORES_MAX} \
         are told in one reply"
    );
    Err(RequestError::invalid(if is_echo { ECHO } else { FIELD }, reason))
}

/// What replies to one request tell of its prompts, and how they name tokens.
#[derive(Clone, Debug, Default)]
pub struct PromptReply {
    pub(crate) fields: PromptFields,
    /// The texts of the rows' prompts, where they are told.
    pub(crate) texts: Vec<Arc<str>>,
}

/// A token of a prompt, or one that could have stood there.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ScoredToken {
    /// Natural logarithm of its probability.
    pub logprob: f64,
    /// How many tokens were likelier, and one.
    pub rank: u32,
    /// Its text.
    pub decoded_token: String,
}

impl PromptReply {
    /// What stands in front of a row's answer.
    pub(super) fn text(&self, row: u32) -> &str {
        self.texts.get(row as usize).map_or("", |text| &**text)
    }

    /// Where an answer's tokens stand in a row's text.
    pub(super) fn offsets(&self, row: u32) -> TextOffsets {
        TextOffsets::behind(self.text(row).chars().count())
    }

    /// How likely the tokens of the text in front of an answer were.
    pub(super) fn echoed(&self, number: u32, row: &AnswerRow) -> Option<CompletionLogprobs> {
        let top = self.fields.echoed_logprobs?;
        let tokens = row.prompt_tokens();
        (!row.prompt.is_empty()).then(|| scored(tokens, self.text(number), top, self.fields.names_ids))
    }

    /// How likely the tokens of a row's prompt were, by their ids; null for the first.
    pub(super) fn scores(&self, row: &AnswerRow) -> Option<Vec<Option<BTreeMap<String, ScoredToken>>>> {
        let top = self.fields.prompt_logprobs? as usize;
        let scores = |token: &PromptToken| {
            let found = token.likelihood.as_ref()?;
            let mut all = BTreeMap::new();
            for (rank, one) in (1..).zip(found.top.iter().take(top)) {
                let likely = ScoredToken { logprob: one.logprob, rank, decoded_token: one.text.clone() };
                all.insert(one.id.0.to_string(), likely);
            }
            all.entry(token.id.0.to_string()).or_insert_with(|| ScoredToken {
                logprob: found.logprob,
                rank: found.rank,
                decoded_token: token.text.clone(),
            });
            Some(all)
        };
        Some(row.prompt_tokens().map(scores).collect())
    }

    /// Why an answer ended, as it is told.
    pub(super) fn finish_reason(&self, end: End) -> &'static str {
        finish_reason(if self.fields.hides_answer { End::Length } else { end })
    }
}

/// How likely the tokens of a prompt were, in the shape of completions.
fn scored<'a>(
    tokens: impl Iterator<Item = &'a PromptToken> + Clone,
    text: &str,
    top: u32,
    names_ids: bool,
) -> CompletionLogprobs {
    let first = first_with_text(tokens.clone(), text);
    let mut tokens: Vec<&PromptToken> = tokens.collect();
    if let (Some(first), Some(place)) = (&first, tokens.first_mut()) {
        *place = first;
    }
    let tokens = tokens.iter().copied();
    let name = |text: &str, id: TokenId| name_of(text, Some(id), names_ids);
    let likely = |token: &PromptToken| {
        let found = token.likelihood.as_ref()?;
        let others = found.top.iter().take(top as usize).filter(|one| one.id != token.id);
        let others = others.map(|one| (name(&one.text, one.id), one.logprob));
        // The token itself is among them, as in answers.
        Some(LikelyTokens::new((name(&token.text, token.id), found.logprob), others))
    };
    let own = |token: &PromptToken| token.likelihood.as_ref().map(|found| found.logprob);
    CompletionLogprobs {
        tokens: tokens.clone().map(|token| name(&token.text, token.id)).collect(),
        token_logprobs: tokens.clone().map(own).collect(),
        top_logprobs: tokens.clone().map(likely).collect(),
        text_offset: places(tokens, text),
    }
}

/// The first token of a prompt with its text where the server that scored the prompt told none: it is what the
/// others leave of the prompt's text.
fn first_with_text<'a>(mut tokens: impl Iterator<Item = &'a PromptToken>, text: &str) -> Option<PromptToken> {
    let first = tokens.next().filter(|first| first.text.is_empty() && first.bytes.is_none())?;
    let others: String = tokens.map(|token| token.text.as_str()).collect();
    let own = text.strip_suffix(others.as_str()).unwrap_or_default();
    Some(PromptToken { text: own.to_owned(), ..first.clone() })
}

/// Characters of a prompt's text in front of each of its tokens.
fn places<'a>(tokens: impl Iterator<Item = &'a PromptToken>, text: &str) -> Vec<usize> {
    let (mut at, mut counted, mut characters, mut broken) = (0, 0, 0, 0);
    let place = |(number, token): (usize, &PromptToken)| {
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        let own = match &token.bytes {
            Some(own) => bytes_in(own, rest),
            None => {
                // The blank in front of a first word may not stand in the text.
                let word = token.text.strip_prefix(' ').filter(|word| !word.is_empty() && at == 0);
                let word = word.filter(|word| rest.starts_with(word.as_bytes()));
                let (before, own) = text_in(word.unwrap_or(&token.text), rest, broken);
                let is_broken = token.text.contains(char::REPLACEMENT_CHARACTER);
                broken = match own {
                    // Of the first its server may have told nothing, and any text may be its own.
                    0 if number == 0 && token.text.is_empty() => BROKEN_MAX,
                    0 => BROKEN_MAX.min(broken + usize::from(is_broken)),
                    _ => 0,
                };
                at += before;
                own
            }
        };
        for character in text.get(counted..).unwrap_or_default().chars() {
            if counted + character.len_utf8() > at {
                break;
            }
            counted += character.len_utf8();
            characters += 1;
        }
        at += own;
        characters
    };
    tokens.enumerate().map(place).collect()
}

/// How many bytes of the rest of a text are a token's. The blank in front of a first word may not stand in it.
fn bytes_in(own: &[u8], rest: &[u8]) -> usize {
    match own {
        _ if rest.starts_with(own) => own.len(),
        [b' ', word @ ..] if rest.starts_with(word) => word.len(),
        _ => own.len().min(rest.len()),
    }
}

/// How many bytes of the rest of a text stand before a token of which its text alone is known, and how many are the
/// token's: none, where it does not stand there. A special one stands in it only where it is written there. Before
/// any there may be the blank that its text lacks, and what `broken` parts of characters stand for, whose bytes are
/// not told; nothing else.
fn text_in(own: &str, rest: &[u8], broken: usize) -> (usize, usize) {
    let own = own.as_bytes();
    let begins = |before: &usize| rest.get(*before..).is_some_and(|rest| rest.starts_with(own));
    let blank = usize::from(broken > 0 || rest.starts_with(b" "));
    let before = (0..=blank + CHARACTER_BYTES_MAX * broken).find(begins);
    before.map_or((0, 0), |before| (before, own.len()))
}

#[cfg(test)]
mod tests {
    use base::{LikelyPromptToken, PromptLikelihood};
    use serde_json::json;

    use super::*;
    use crate::wire::openai::tests::model;

    fn token(id: u32, text: &str, logprob: Option<f64>) -> PromptToken {
        let top = |(id, text, logprob): (u32, &str, f64)| LikelyPromptToken {
            id: TokenId(id),
            text: text.into(),
            logprob,
        };
        let likelihood = logprob.map(|logprob| PromptLikelihood {
            logprob,
            rank: 7,
            top: [(1, "x", -0.5), (2, "y", -1.0)].map(top).to_vec(),
        });
        PromptToken { id: TokenId(id), text: text.into(), bytes: Some(text.into()), likelihood }
    }

    #[test]
    fn a_prompts_tokens_are_placed_in_its_text_whatever_they_spell() {
        let special = |text: &str| PromptToken { bytes: None, ..token(9, text, None) };
        let check = |tokens: &[PromptToken], text: &str, expected: &[usize]| {
            assert_eq!(places(tokens.iter(), text), expected, "{text:?}");
        };
        let plain = |text: &str| token(1, text, None);
        check(&[plain("é"), plain("!"), plain(" x")], "é! x", &[0, 1, 2]);
        check(&[special("<s>"), plain(" The"), plain(" film")], "The film", &[0, 0, 3]);
        check(&[special("<s>"), plain("a")], "<s>a", &[0, 3]);
        check(&[plain("a"), special("<e>"), plain("b")], "a<e>b", &[0, 1, 4]);
        let half = |byte: u8| PromptToken { bytes: Some(vec![byte]), ..plain("?") };
        check(&[half(0xc3), half(0xa9), plain("b")], "éb", &[0, 0, 1]);
        check(&[plain("longer"), plain("b")], "lo", &[0, 2]);
        // A server tells texts alone, of some without the blank before them, and of parts of characters nothing.
        check(&[special("The"), special("film"), special(" é")], "The film é", &[0, 4, 8]);
        let parts = [special("a"), special("\u{fffd}"), special("\u{fffd}"), special("!"), special("b")];
        check(&parts, "a\u{1f980}!b", &[0, 1, 1, 2, 3]);
        check(&[special("a"), special("<e>"), special("xb")], "axb", &[0, 1, 1]);
        // What begins the prompt is written behind its first character too.
        let begun = [special("<s>"), special("x"), special("<s>"), special("y")];
        check(&begun, "x<s>y", &[0, 0, 1, 4]);
        // Of the first nothing is told, and the others do not spell what it leaves.
        let parts = ["", " film", " ", "\u{fffd}", "\u{fffd}", "!"].map(special);
        check(&parts, "The film \u{1f980}!", &[0, 3, 8, 9, 9, 10]);
        let spaced = ["", " The", " film", ".", " The"].map(special);
        check(&spaced, "The film. The", &[0, 0, 3, 8, 9]);
    }

    #[test]
    fn the_first_token_is_told_with_the_text_that_the_others_leave_where_its_server_told_none() {
        let plain = |id: u32, text: &str, logprob| PromptToken { bytes: None, ..token(id, text, logprob) };
        let told = |first: &str, text: &str| {
            let tokens = [plain(5, first, None), plain(6, "b", Some(-3.0)), plain(7, "c", Some(-1.0))];
            let told = scored(tokens.iter(), text, 0, false);
            (told.tokens, told.text_offset)
        };
        let check = |found: (Vec<String>, Vec<usize>), first: &str, offsets: [usize; 3]| {
            assert_eq!(found, ([first, "b", "c"].map(str::to_owned).to_vec(), offsets.to_vec()));
        };
        check(told("", "aébc"), "aé", [0, 2, 3]);
        check(told("", "bc"), "", [0, 0, 1]);
        check(told("<s>", "bc"), "<s>", [0, 0, 1]);
        // The others do not spell the end: nobody knows what it was.
        check(told("", "bc "), "", [0, 0, 1]);
    }

    #[test]
    fn both_shapes_have_null_first_and_the_token_itself_beside_the_likeliest() {
        let tokens = [token(5, "a", None), token(6, "b", Some(-3.0)), token(1, "x", Some(-0.5))];
        let told = json!(scored(tokens.iter(), "abx", 1, false));
        let expected = json!({"tokens": ["a", "b", "x"], "token_logprobs": [null, -3.0, -0.5],
            "top_logprobs": [null, {"b": -3.0, "x": -0.5}, {"x": -0.5}], "text_offset": [0, 1, 2]});
        assert_eq!(told, expected);
        let named = json!(scored(tokens.iter(), "abx", 1, true));
        assert_eq!(named["tokens"], json!(["token_id:5", "token_id:6", "token_id:1"]));
        let first = named["top_logprobs"][1].as_object().expect("it is likely").keys().next();
        assert_eq!(first.map(String::as_str), Some("token_id:6"), "the token itself comes first");
        assert_eq!(named["text_offset"], json!([0, 1, 2]));
        let relquery = serving::relquery_state::RelQueryState::new(
            base::RelQueryId(1),
            base::TenantId(1),
            serving::relquery_state::RelQueryKind::RelQuery,
            1,
            serving::relquery_state::Arrival { unix_ms: 0, time: base::Time(0) },
        );
        relquery.keep_prompt(0, Arc::from(&tokens[..2]));
        relquery.keep_prompt(0, Arc::from(&tokens[2..]));
        let scores = |top| {
            let fields = PromptFields { prompt_logprobs: top, ..PromptFields::default() };
            json!(PromptReply { fields, texts: Vec::new() }.scores(&relquery.read().rows[0]))
        };
        let one = |logprob: f64, rank: u32, text: &str| json!({"logprob": logprob, "rank": rank, "decoded_token": text});
        let x = one(-0.5, 1, "x");
        assert_eq!(scores(None), json!(null));
        assert_eq!(scores(Some(1)), json!([null, {"1": x, "6": one(-3.0, 7, "b")}, {"1": x}]));
        assert_eq!(scores(Some(0)), json!([null, {"6": one(-3.0, 7, "b")}, {"1": one(-0.5, 7, "x")}]));
    }

    #[test]
    fn prompts_are_scored_where_that_can_be_done_and_told_and_not_without_bound() {
        let read = |body: &str, is_stream, scores_prompts| {
            let mut fields = crate::json::object(body.as_bytes()).expect("an object");
            take(&mut fields, is_stream, &Model { scores_prompts, ..model() })
        };
        let asked = r#"{"prompt_logprobs":3}"#;
        assert_eq!(read("{}", true, false), Ok(None));
        assert_eq!(read(asked, false, true), Ok(Some(3)));
        for (error, words) in [
            (read(asked, true, true), "stream"),
            (read(asked, false, false), "servers of dialect \"vllm\""),
            (read(r#"{"prompt_logprobs":21}"#, false, true), "from 0 to 20"),
            (read(r#"{"prompt_logprobs":-1}"#, false, true), "from 0 to 20"),
        ] {
            let error = error.expect_err("refused").to_string();
            assert!(error.contains("`prompt_logprobs`") && error.contains(words), "{error}");
        }
        assert_eq!(check_told(u64::MAX, None, true), Ok(0), "nothing is told");
        assert_eq!(check_told(SCORES_MAX / 2, Some(1), true), Ok(SCORES_MAX));
        for (is_echo, field) in [(true, "`echo`"), (false, "`prompt_logprobs`")] {
            let error = check_told(SCORES_MAX / 2 + 1, Some(1), is_echo).expect_err("too many").to_string();
            assert!(error.contains(field) && error.contains("131072"), "{error}");
        }
    }
}
