//! What a request of OpenAI's routes has done to logits and to the form of its text: OpenAI's penalties and biases,
//! and vLLM's fields beside them.

use base::{Generation, LogitAdjustments, TokenCount, TokenId};
use serde_json::Value;
use serving::error::RequestError;
use serving::model::Model;

use super::token_ids::{ids, take_list, token};
use crate::json::JsonFields;
use crate::wire::ValidationContext;

/// Tokens whose logits a request can change, as OpenAI has it.
const BIASES_MAX: usize = 300;
/// Keys that are named where they are no tokens.
const KEYS_NAMED: usize = 3;
/// Most that a bias adds or takes, as OpenAI has it.
const BIAS_MAX: f64 = 100.0;
/// Most that a presence or frequency penalty takes, as OpenAI has it.
const PENALTY_MAX: f64 = 2.0;
/// Largest repetition penalty: a logit is no larger itself.
const REPETITION_MAX: f64 = 100.0;
/// Tokens at which an output may end beside the model's own.
const STOP_TOKENS_MAX: usize = 128;

/// Takes the fields; `output_max`: the most that the output may have.
pub(super) fn take(
    fields: &mut JsonFields,
    ValidationContext { model, .. }: ValidationContext<'_>,
    (generation, output_max): (&mut Generation, u64),
) -> Result<(), RequestError> {
    let mut penalty = |name: &str| {
        let range = format!("from -{PENALTY_MAX} to {PENALTY_MAX}");
        let found = fields.number(name, &range, |penalty| penalty.abs() <= PENALTY_MAX)?;
        Ok::<f32, RequestError>(found.map_or(0.0, |penalty| penalty as f32))
    };
    let (presence_penalty, frequency_penalty) = (penalty("presence_penalty")?, penalty("frequency_penalty")?);
    let range = format!("above 0 and at most {REPETITION_MAX}");
    let repetition = |penalty| penalty > 0.0 && penalty <= REPETITION_MAX;
    let repetition = fields.number("repetition_penalty", &range, repetition)?;
    let min_p = fields.number("min_p", "from 0 to 1", |share| (0.0..=1.0).contains(&share))?;
    let output_min = fields.integer("min_tokens", 0, output_max)?.unwrap_or(0);
    if output_min > 0 && generation.constraint.is_some() {
        return fields
            .bad("min_tokens", "has no place beside a constraint, which says where the output ends");
    }
    let adjustments = LogitAdjustments {
        output_min: TokenCount(output_min),
        logit_bias: biases(fields, model)?,
        allowed: allowed(fields, model)?,
        // The smallest f32 above 0 rather than 0, which nothing can be divided by.
        repetition_penalty: repetition.map_or(1.0, |penalty| (penalty as f32).max(f32::MIN_POSITIVE)),
        frequency_penalty,
        presence_penalty,
        min_p: min_p.map_or(0.0, |share| share as f32),
    };
    let is_neutral = adjustments == LogitAdjustments::default();
    generation.adjustments = (!is_neutral).then(|| Box::new(adjustments));
    generation.stop_tokens = stop_tokens(fields, model)?;
    generation.shows_stop = fields.bool("include_stop_str_in_output")?.unwrap_or(false);
    generation.shows_special = !fields.bool("skip_special_tokens")?.unwrap_or(true);
    Ok(())
}

/// `logit_bias`: an object from token ids, which JSON has as strings, to what is added to their logits.
fn biases(fields: &mut JsonFields, model: &Model) -> Result<Vec<(TokenId, f32)>, RequestError> {
    let biases = match fields.take("logit_bias") {
        None => return Ok(Vec::new()),
        Some(Value::Object(biases)) => biases,
        Some(_) => return fields.bad("logit_bias", "must be an object from token ids to numbers"),
    };
    if biases.len() > BIASES_MAX {
        let reason = format!("has {} tokens; at most {BIASES_MAX} are allowed", biases.len());
        return fields.bad("logit_bias", reason);
    }
    let (mut read, mut wrong) = (Vec::with_capacity(biases.len()), Vec::new());
    for (id, bias) in &biases {
        let Some(token) = id.parse().ok().and_then(|id| token(id, model)) else {
            wrong.push(id.as_str());
            continue;
        };
        match bias.as_f64().filter(|bias| bias.abs() <= BIAS_MAX) {
            Some(bias) => read.push((token, bias as f32)),
            None => {
                let reason = format!("of token {id} must be a number from -{BIAS_MAX} to {BIAS_MAX}");
                return fields.bad("logit_bias", reason);
            }
        }
    }
    if !wrong.is_empty() {
        return fields.bad("logit_bias", format!("has {}: {}", keys(&wrong), ids(model)));
    }
    read.sort_unstable_by_key(|(token, _)| *token);
    if read.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return fields.bad("logit_bias", "has a token twice");
    }
    Ok(read)
}

/// Keys that are wrong: the first of them, and how many there are beside.
fn keys(wrong: &[&str]) -> String {
    let named: Vec<String> = wrong.iter().take(KEYS_NAMED).map(|key| format!("`{key}`")).collect();
    let (named, more) = (named.join(", "), wrong.len().saturating_sub(KEYS_NAMED));
    match (wrong.len(), more) {
        (..=1, _) => format!("the key {named}"),
        (_, 0) => format!("the keys {named}"),
        _ => format!("the keys {named} and {more} more like them"),
    }
}

/// `stop_token_ids`: tokens that end the output.
fn stop_tokens(fields: &mut JsonFields, model: &Model) -> Result<Vec<TokenId>, RequestError> {
    let items = fields.array("stop_token_ids")?.unwrap_or_default();
    if items.len() > STOP_TOKENS_MAX {
        let reason = format!("has {} tokens; at most {STOP_TOKENS_MAX} are allowed", items.len());
        return fields.bad("stop_token_ids", reason);
    }
    let read: Option<Vec<TokenId>> =
        items.iter().map(|item| item.as_u64().and_then(|id| token(id, model))).collect();
    read.map_or_else(|| fields.bad("stop_token_ids", ids(model)), Ok)
}

/// `allowed_token_ids`: the only tokens that are drawn.
fn allowed(fields: &mut JsonFields, model: &Model) -> Result<Option<Vec<TokenId>>, RequestError> {
    const FIELD: &str = "allowed_token_ids";
    let Some(mut tokens) = take_list(fields, FIELD, model)? else { return Ok(None) };
    if tokens.is_empty() {
        return fields.bad(FIELD, "must not be empty: no token could be drawn");
    }
    tokens.sort_unstable();
    tokens.dedup();
    Ok(Some(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsConfig;
    use crate::json;
    use crate::wire::openai::tests::with_context;

    fn read(body: &str) -> Result<Generation, RequestError> {
        let mut fields = json::object(body.as_bytes())?;
        let mut generation = Generation::default();
        with_context(&LimitsConfig::default(), |context| {
            take(&mut fields, context, (&mut generation, 50))?;
            fields.finish()
        })?;
        Ok(generation)
    }

    #[test]
    fn what_changes_nothing_leaves_a_row_as_it_is() {
        for body in [
            "{}",
            r#"{"presence_penalty":0,"frequency_penalty":0.0,"repetition_penalty":1,"min_p":0,"min_tokens":0}"#,
            r#"{"logit_bias":{},"stop_token_ids":[],"skip_special_tokens":true}"#,
            r#"{"logit_bias":null,"allowed_token_ids":null,"include_stop_str_in_output":false}"#,
        ] {
            assert_eq!(read(body), Ok(Generation::default()), "{body}");
        }
    }

    #[test]
    fn fields_are_read_to_the_ends_of_their_ranges() {
        let found = read(
            r#"{"presence_penalty":-2,"frequency_penalty":2,"repetition_penalty":1e-60,"min_p":1,"min_tokens":50,
                "logit_bias":{"256":-100,"0":100,"7":0.5},"allowed_token_ids":[256,7,0,7],"stop_token_ids":[256,0],"skip_special_tokens":false,
                "include_stop_str_in_output":true}"#,
        )
        .expect("valid");
        let adjustments = LogitAdjustments {
            output_min: TokenCount(50),
            logit_bias: vec![(TokenId(0), 100.0), (TokenId(7), 0.5), (TokenId(256), -100.0)],
            allowed: Some([0, 7, 256].map(TokenId).to_vec()),
            repetition_penalty: f32::MIN_POSITIVE,
            frequency_penalty: 2.0,
            presence_penalty: -2.0,
            min_p: 1.0,
        };
        assert_eq!(found.adjustments, Some(Box::new(adjustments)));
        assert_eq!(found.stop_tokens, [TokenId(256), TokenId(0)]);
        assert!(found.shows_special && found.shows_stop);
    }

    #[test]
    fn what_is_out_of_range_is_named_with_its_limit() {
        let many = |count: usize| (0..count).map(|id| format!("\"{id}\":1")).collect::<Vec<_>>().join(",");
        let biases = format!("{{{}}}", many(BIASES_MAX + 1));
        for (name, value, limit) in [
            ("presence_penalty", "2.01", "-2 to 2"),
            ("presence_penalty", "\"1\"", "a number"),
            ("frequency_penalty", "-2.01", "-2 to 2"),
            ("repetition_penalty", "0", "above 0"),
            ("repetition_penalty", "100.1", "at most 100"),
            ("min_p", "1.01", "0 to 1"),
            ("min_p", "-0.1", "0 to 1"),
            ("min_tokens", "51", "0 to 50"),
            ("min_tokens", "-1", "0 to 50"),
            ("logit_bias", "[]", "an object"),
            ("logit_bias", "{\"257\":1}", "0 to 256, of a vocabulary of 257"),
            ("logit_bias", "{\"-1\":1}", "0 to 256"),
            ("logit_bias", "{\"a\":1}", "0 to 256"),
            ("logit_bias", "{\"1\":100.5}", "-100 to 100"),
            ("logit_bias", "{\"1\":true}", "-100 to 100"),
            ("logit_bias", "{\"1\":1,\"01\":1}", "twice"),
            ("logit_bias", &biases, "at most 300"),
            ("allowed_token_ids", "[]", "not be empty"),
            ("allowed_token_ids", "7", "an array"),
            ("allowed_token_ids[0]", "[257]", "0 to 256"),
            ("allowed_token_ids[1]", "[1,-1]", "0 to 256"),
            ("allowed_token_ids[2]", "[1,2,\"3\"]", "0 to 256"),
            ("stop_token_ids", "[257]", "0 to 256"),
            ("stop_token_ids", "[\"1\"]", "0 to 256"),
            ("stop_token_ids", "5", "an array"),
            ("skip_special_tokens", "1", "true or false"),
            ("include_stop_str_in_output", "\"yes\"", "true or false"),
        ] {
            let key = name.split('[').next().unwrap_or_default();
            match read(&format!("{{\"{key}\":{value}}}")) {
                Err(RequestError::Invalid { field, reason }) => {
                    assert_eq!(field, name, "{value}");
                    assert!(reason.contains(limit), "{name} = {value}: {reason}");
                }
                other => panic!("{name} = {value} gave {other:?}"),
            }
        }
        let wrong = |keys: usize| {
            let keys: Vec<String> = (0..keys).map(|key| format!("\"no{key}\":1")).collect();
            read(&format!("{{\"logit_bias\":{{\"1\":1,{}}}}}", keys.join(",")))
                .expect_err("wrong")
                .to_string()
        };
        assert!(wrong(1).contains("has the key `no0`: token ids"), "{}", wrong(1));
        assert!(wrong(3).contains("has the keys `no0`, `no1`, `no2`: token ids"), "{}", wrong(3));
        assert!(wrong(5).contains("`no0`, `no1`, `no2` and 2 more"), "{}", wrong(5));
        let stops = format!("{{\"stop_token_ids\":[{}1]}}", "1,".repeat(STOP_TOKENS_MAX));
        assert!(read(&stops).is_err_and(|error| error.to_string().contains("at most 128")));
    }

    #[test]
    fn a_constraint_alone_says_where_its_output_ends() {
        let mut fields = json::object(br#"{"min_tokens":1}"#).expect("an object");
        let constraint = Some(base::Constraint::Choice(vec!["a".into()]));
        let mut generation = Generation { constraint, ..Generation::default() };
        let taken = with_context(&LimitsConfig::default(), |context| {
            take(&mut fields, context, (&mut generation, 50))
        });
        assert!(matches!(taken, Err(RequestError::Invalid { field, .. }) if field == "min_tokens"));
    }
}
