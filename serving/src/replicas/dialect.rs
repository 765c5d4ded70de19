//! What servers understand beyond OpenAI's own fields: how each dialect writes what a row asks for, or that
//! it cannot.
//!
//! Nothing is dropped in silence: an answer is the answer to what was asked, or the row fails and says why.

use base::{Constraint, Generation, Items, MarkedJson, PromptEnd, Role, TriggeredTags};
use serde_json::{Map, Value, json};

use super::adjusted;
use crate::config::Dialect;

/// Longest range of integers that is written as a choice of all of them.
const CHOICES_MAX: u64 = 1_024;

/// The fields that say where a conversation ends; `last`: who speaks last in it.
pub fn ending(
    end: PromptEnd,
    last: Option<Role>,
    dialect: Dialect,
) -> Result<&'static [(&'static str, bool)], String> {
    let word = match (end, dialect) {
        (PromptEnd::Answer, _) => return Ok(&[]),
        (PromptEnd::Message, Dialect::Vllm) => return Ok(&[("add_generation_prompt", false)]),
        (PromptEnd::Text, Dialect::Vllm) => {
            return Ok(&[("add_generation_prompt", false), ("continue_final_message", true)]);
        }
        // It continues the assistant's messages alone, and answers others.
        (PromptEnd::Text, Dialect::Sglang) if last == Some(Role::Assistant) => {
            return Ok(&[("continue_final_message", true)]);
        }
        (PromptEnd::Message, _) => "add_generation_prompt",
        (PromptEnd::Text, _) => "continue_final_message",
    };
    Err(format!("servers of dialect \"{}\" do not know {word}", dialect.name()))
}

/// The fields of a row's generation beyond OpenAI's; `is_chat`: of `/v1/chat/completions`.
pub fn fields(
    generation: &Generation,
    dialect: Dialect,
    is_chat: bool,
) -> Result<Map<String, Value>, String> {
    let mut fields = Map::new();
    let cannot = |what: &str| Err(format!("servers of dialect \"{}\" do not know {what}", dialect.name()));
    let knows_more = matches!(dialect, Dialect::Vllm | Dialect::Sglang);
    match (dialect, generation.top_k) {
        (Dialect::Openai, None) => {}
        (Dialect::Openai, Some(_)) => return cannot("top_k"),
        (Dialect::Vllm | Dialect::Sglang, top_k) => {
            fields.insert("top_k".into(), top_k.map_or(json!(-1), |top_k| json!(top_k)));
            // Else a model's own `generation_config.json` has its say there.
            fields.insert("min_p".into(), json!(0.0));
            fields.insert("repetition_penalty".into(), json!(1.0));
        }
        (Dialect::LlamaCpp, top_k) => {
            fields.insert("top_k".into(), json!(top_k.unwrap_or(0)));
            // Else they are 0.05 and 1.1 there.
            fields.insert("min_p".into(), json!(0.0));
            fields.insert("repeat_penalty".into(), json!(1.0));
        }
    }
    if let Err(field) = adjusted::write(generation, dialect, &mut fields) {
        return cannot(field);
    }
    if generation.ignore_end {
        if !knows_more {
            return cannot("ignore_eos");
        }
        fields.insert("ignore_eos".into(), json!(true));
    }
    if !generation.stop_tokens.is_empty() {
        if !knows_more {
            return cannot("stop_token_ids");
        }
        let ids: Vec<u32> = generation.stop_tokens.iter().map(|token| token.0).collect();
        fields.insert("stop_token_ids".into(), json!(ids));
    }
    if let Some(top) = generation.logprobs {
        // Named tokens are told in place of the likeliest: who tells none then knows nothing of names.
        let top = if generation.logprob_tokens.is_empty() { top } else { 0 };
        if is_chat {
            fields.insert("logprobs".into(), json!(true));
            fields.insert("top_logprobs".into(), json!(top));
        } else {
            fields.insert("logprobs".into(), json!(top));
        }
        if dialect == Dialect::LlamaCpp && !is_chat {
            // The C++ server's word for it outside of conversations, where at least one is told.
            fields.insert("n_probs".into(), json!(top.max(1)));
        }
        if !generation.logprob_tokens.is_empty() {
            if dialect != Dialect::Vllm {
                return cannot("logprob_token_ids");
            }
            let ids: Vec<u32> = generation.logprob_tokens.iter().map(|token| token.0).collect();
            fields.insert("logprob_token_ids".into(), json!(ids));
        }
    }
    if let Some(top) = generation.prompt_logprobs {
        if !dialect.scores_prompts() {
            return cannot("prompt_logprobs");
        }
        fields.insert("prompt_logprobs".into(), json!(top));
    }
    if let Some(constraint) = &generation.constraint {
        let (name, value) = constrained(constraint, dialect, is_chat)?;
        fields.insert(name.into(), value);
    }
    Ok(fields)
}

/// The field that holds an output to a constraint.
///
/// vLLM: <https://docs.vllm.ai/en/latest/features/structured_outputs/>. SGLang:
/// <https://docs.sglang.io/advanced_features/structured_outputs.html>. llama.cpp: `grammar` (GBNF) and a
/// `json_object` with a `schema` are what both of its servers take.
pub fn constrained(
    constraint: &Constraint,
    dialect: Dialect,
    is_chat: bool,
) -> Result<(&'static str, Value), String> {
    let form = Form::of(constraint)?;
    let cannot = |what: &str| {
        let route = if is_chat { "" } else { " outside of conversations" };
        Err(format!("servers of dialect \"{}\" cannot hold outputs to {what}{route}", dialect.name()))
    };
    match (dialect, &form) {
        (Dialect::Vllm, Form::Choice(texts)) => Ok(("structured_outputs", json!({ "choice": texts }))),
        (Dialect::Vllm, Form::Regex(regex)) => Ok(("structured_outputs", json!({ "regex": regex }))),
        (Dialect::Vllm, Form::Grammar(lark)) => Ok(("structured_outputs", json!({ "grammar": lark }))),
        (Dialect::Vllm, Form::Ebnf(ebnf)) => Ok(("structured_outputs", json!({ "grammar": ebnf }))),
        (Dialect::Vllm, Form::Json(text)) => Ok(("structured_outputs", json!({ "json": schema(text)? }))),
        (Dialect::Vllm, Form::Tags(text)) => Ok(("structured_outputs", json!({ "structural_tag": text }))),
        (Dialect::Sglang, Form::Choice(texts)) => {
            let texts: Vec<String> = texts.iter().map(|text| escaped(text)).collect();
            Ok(("regex", json!(format!("({})", texts.join("|")))))
        }
        (Dialect::Sglang, Form::Regex(regex)) => Ok(("regex", json!(regex))),
        (Dialect::Sglang, Form::Ebnf(ebnf)) => Ok(("ebnf", json!(ebnf))),
        (Dialect::Sglang, Form::Json(text)) if !is_chat => Ok(("json_schema", json!(text))),
        (Dialect::LlamaCpp, Form::Choice(texts)) => {
            let texts: Vec<String> =
                texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
            Ok(("grammar", json!(format!("root ::= {}", texts.join(" | ")))))
        }
        (Dialect::LlamaCpp, Form::Ebnf(ebnf)) => Ok(("grammar", json!(ebnf))),
        (Dialect::LlamaCpp, Form::Json(text)) if is_chat => {
            Ok(("response_format", json!({ "type": "json_object", "schema": schema(text)? })))
        }
        (Dialect::Openai | Dialect::Sglang, Form::Json(text)) if is_chat => {
            let named = json!({ "name": "answer", "strict": true, "schema": schema(text)? });
            Ok(("response_format", json!({ "type": "json_schema", "json_schema": named })))
        }
        (_, Form::Choice(_)) => cannot("a choice"),
        (_, Form::Regex(_)) => cannot("a regex"),
        (_, Form::Json(_)) => cannot("a JSON schema"),
        (_, Form::Grammar(_)) => cannot("a grammar in the notation of Lark"),
        (_, Form::Ebnf(_)) => cannot("a grammar in EBNF"),
        (_, Form::Tags(_)) => cannot("a structural tag"),
    }
}

/// A constraint in words that dialects have: an integer is a choice where its range is short, else a schema.
enum Form {
    Choice(Vec<String>),
    Regex(String),
    Json(String),
    Grammar(String),
    Ebnf(String),
    /// The JSON text of a structural tag.
    Tags(String),
}

impl Form {
    fn of(constraint: &Constraint) -> Result<Self, String> {
        Ok(match constraint {
            Constraint::Integer { low, high } if low.abs_diff(*high) < CHOICES_MAX => {
                Self::Choice((*low..=*high).map(|number| number.to_string()).collect())
            }
            Constraint::Integer { low, high } => {
                Self::Json(json!({ "type": "integer", "minimum": low, "maximum": high }).to_string())
            }
            Constraint::Choice(texts) => Self::Choice(texts.clone()),
            Constraint::Regex(regex) => Self::Regex(regex.clone()),
            Constraint::JsonSchema(text) => Self::Json(text.clone()),
            Constraint::Grammar(lark) => Self::Grammar(lark.clone()),
            Constraint::Ebnf(ebnf) => Self::Ebnf(ebnf.clone()),
            Constraint::Items(items) => Self::Regex(items_regex(items)),
            Constraint::TriggeredTags(tags) => Self::Tags(tags_text(tags)?),
            // Rows whose texts are understood list what they say.
            Constraint::Reading { otherwise: Some(otherwise), .. } => return Self::of(otherwise),
            Constraint::StructuralTag(_) => return Err("no server takes a tag in free text".into()),
            Constraint::Excerpt { .. } | Constraint::Reading { .. } => {
                return Err("no server takes a form for stretches of a row's own text".into());
            }
        })
    }
}

/// Tags that one trigger begins, in vLLM's words.
fn tags_text(TriggeredTags { trigger, tags }: &TriggeredTags) -> Result<String, String> {
    let structure = |tag: &MarkedJson| -> Result<Value, String> {
        Ok(json!({ "begin": tag.begin, "schema": schema(&tag.schema)?, "end": tag.end }))
    };
    let structures: Vec<Value> = tags.iter().map(structure).collect::<Result<_, _>>()?;
    Ok(json!({ "type": "structural_tag", "structures": structures, "triggers": [trigger] }).to_string())
}

/// Items as a regular expression, which lets them be alike: it would have to count all orders of them.
fn items_regex(items: &Items) -> String {
    let Items { texts, separator, count_min, count_max, chars_max } = items;
    let item = match texts {
        Some(texts) => format!("({})", texts.iter().map(|text| escaped(text)).collect::<Vec<_>>().join("|")),
        None => {
            let begin: String = separator.chars().take(1).map(|c| escaped(&c.to_string())).collect();
            format!("[^{begin}\\n]{{1,{chars_max}}}")
        }
    };
    let more = (count_min.saturating_sub(1), count_max.saturating_sub(1));
    format!("{item}({}{item}){{{},{}}}", escaped(separator), more.0, more.1)
}

fn schema(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("the JSON schema is not JSON: {error}"))
}

/// Text as a regular expression that matches nothing else.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if "\\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dialect: Dialect, is_chat: bool, constraint: &Constraint, expected: Option<Value>) {
        let got = constrained(constraint, dialect, is_chat).ok();
        let got = got.map(|(name, value)| json!({ name: value }));
        assert_eq!(got, expected, "{dialect:?} {is_chat} {constraint:?}");
    }

    #[test]
    fn each_dialect_writes_what_it_has_a_word_for_and_refuses_the_rest() {
        let choice = Constraint::Choice(vec!["a.b".into(), "c\"d".into()]);
        let regex = Constraint::Regex("x+".into());
        let json = Constraint::JsonSchema(r#"{"type":"object"}"#.into());
        let small = Constraint::Integer { low: -1, high: 1 };
        let large = Constraint::Integer { low: 0, high: 1 << 20 };
        let bounds = json!({ "type": "integer", "minimum": 0, "maximum": 1 << 20 });
        let (text, lark) = ("root ::= [a-z]+", "start: /[a-z]+/");
        let ebnf = Constraint::Ebnf(text.into());
        use Dialect::{LlamaCpp, Openai, Sglang, Vllm};
        let outputs = |value: Value| Some(json!({ "structured_outputs": value }));
        for is_chat in [false, true] {
            check(Vllm, is_chat, &choice, outputs(json!({ "choice": ["a.b", "c\"d"] })));
            check(Vllm, is_chat, &regex, outputs(json!({ "regex": "x+" })));
            check(Vllm, is_chat, &json, outputs(json!({ "json": { "type": "object" } })));
            check(Vllm, is_chat, &small, outputs(json!({ "choice": ["-1", "0", "1"] })));
            check(Vllm, is_chat, &large, outputs(json!({ "json": bounds })));
            check(Sglang, is_chat, &choice, Some(json!({ "regex": "(a\\.b|c\"d)" })));
            check(Sglang, is_chat, &small, Some(json!({ "regex": "(-1|0|1)" })));
            check(LlamaCpp, is_chat, &choice, Some(json!({ "grammar": "root ::= \"a.b\" | \"c\\\"d\"" })));
            check(LlamaCpp, is_chat, &regex, None);
            check(Openai, is_chat, &choice, None);
            check(Openai, is_chat, &regex, None);
            check(Openai, is_chat, &small, None);
            check(Vllm, is_chat, &ebnf, outputs(json!({ "grammar": text })));
            check(Sglang, is_chat, &ebnf, Some(json!({ "ebnf": text })));
            check(LlamaCpp, is_chat, &ebnf, Some(json!({ "grammar": text })));
            check(Openai, is_chat, &ebnf, None);
            check(Vllm, is_chat, &Constraint::Grammar(lark.into()), outputs(json!({ "grammar": lark })));
            check(LlamaCpp, is_chat, &Constraint::Grammar(lark.into()), None);
        }
        let tag = MarkedJson { begin: "<a>".into(), schema: "{}".into(), end: "</a>".into() };
        let tags = TriggeredTags { trigger: "<a".into(), tags: vec![tag] };
        let told = json!({ "type": "structural_tag", "structures": [{ "begin": "<a>", "schema": {}, "end": "</a>" }],
            "triggers": ["<a"] });
        let tags = Constraint::TriggeredTags(Box::new(tags));
        check(Vllm, true, &tags, outputs(json!({ "structural_tag": told.to_string() })));
        check(Sglang, true, &tags, None);
        let object = json!({ "type": "json_object", "schema": { "type": "object" } });
        check(LlamaCpp, true, &json, Some(json!({ "response_format": object })));
        check(LlamaCpp, false, &json, None);
        let named = json!({ "name": "answer", "strict": true, "schema": { "type": "object" } });
        let format = json!({ "response_format": { "type": "json_schema", "json_schema": named } });
        check(Openai, true, &json, Some(format.clone()));
        check(Sglang, true, &json, Some(format));
        check(Sglang, false, &json, Some(json!({ "json_schema": "{\"type\":\"object\"}" })));
        check(Openai, false, &json, None);
    }

    #[test]
    fn what_a_dialect_does_not_know_is_refused_by_name() {
        let plain = Generation::default();
        let top_k = Generation { top_k: Some(5), ..plain.clone() };
        let ignore = Generation { ignore_end: true, ..plain.clone() };
        let scored = Generation { prompt_logprobs: Some(2), ..plain.clone() };
        for (dialect, generation, word) in [
            (Dialect::Openai, &top_k, "top_k"),
            (Dialect::Openai, &ignore, "ignore_eos"),
            (Dialect::LlamaCpp, &ignore, "ignore_eos"),
            (Dialect::Openai, &scored, "prompt_logprobs"),
            (Dialect::Sglang, &scored, "prompt_logprobs"),
            (Dialect::LlamaCpp, &scored, "prompt_logprobs"),
        ] {
            let error = fields(generation, dialect, true).expect_err("it is refused");
            assert!(error.contains(word) && error.contains(dialect.name()), "{error}");
        }
        assert_eq!(fields(&plain, Dialect::Openai, true), Ok(Map::new()));
        let told = Generation { logprobs: Some(2), ..plain.clone() };
        let of = |dialect, is_chat| Value::from(fields(&told, dialect, is_chat).expect("known"));
        assert_eq!(of(Dialect::Openai, true), json!({ "logprobs": true, "top_logprobs": 2 }));
        assert_eq!(of(Dialect::Openai, false), json!({ "logprobs": 2 }));
        assert_eq!(of(Dialect::LlamaCpp, false)["n_probs"], 2);
        let named = Generation { logprob_tokens: vec![base::TokenId(7)], ..told.clone() };
        let sent = fields(&named, Dialect::Vllm, false).expect("known");
        assert_eq!((&sent["logprobs"], &sent["logprob_token_ids"]), (&json!(0), &json!([7])));
        let sent = fields(&named, Dialect::Vllm, true).expect("known");
        assert_eq!((&sent["logprobs"], &sent["top_logprobs"]), (&json!(true), &json!(0)));
        let error = fields(&named, Dialect::Sglang, true).expect_err("it is refused");
        assert!(error.contains("logprob_token_ids"), "{error}");
        let scores = fields(&scored, Dialect::Vllm, false).expect("known");
        assert_eq!(scores["prompt_logprobs"], 2);
        let both = Generation { top_k: Some(5), ignore_end: true, ..plain.clone() };
        let got =
            |generation: &Generation, dialect| Value::from(fields(generation, dialect, true).expect("known"));
        let neutral = json!({ "top_k": 5, "min_p": 0.0, "repetition_penalty": 1.0, "ignore_eos": true });
        assert_eq!(got(&both, Dialect::Vllm), neutral);
        let neutral = json!({ "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0 });
        assert_eq!(got(&plain, Dialect::Sglang), neutral, "no default of the server's has its say");
        let neutral = json!({ "top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0 });
        assert_eq!(got(&plain, Dialect::LlamaCpp), neutral);
    }
}
