//! A replica that is added, and what the list of replicas and the live view tell alike of one: what its KV memory holds,
//! and what its rows cost.

use scheduler::CostModel;
use serde::Serialize;
use serde_json::{Map, Value};
use serving::config::ReplicaSettings;
use serving::error::RequestError;
use serving::replicas::ReplicaView;

/// Reads `POST /v1/replicas`: an entry of `[[replicas]]`. Each field is read alone first, for an error of the whole does
/// not say which it is of; none has to be there.
pub fn entry(body: Value) -> Result<ReplicaSettings, RequestError> {
    let Value::Object(fields) = body else {
        return Err(RequestError::invalid("replica", "must be an object"));
    };
    for (name, value) in &fields {
        let alone: Map<String, Value> = std::iter::once((name.clone(), value.clone())).collect();
        let read = serde_json::from_value::<ReplicaSettings>(Value::Object(alone));
        read.map_err(|error| RequestError::invalid(name, in_words(&error.to_string())))?;
    }
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| RequestError::invalid("replica", error.to_string()))
}

/// An error of a field as people who write no Rust read it.
fn in_words(error: &str) -> String {
    let told = error.strip_prefix("invalid type: ").or_else(|| error.strip_prefix("invalid value: "));
    let Some((given, wanted)) = told.and_then(|told| told.rsplit_once(", expected ")) else {
        return error.to_owned();
    };
    let wanted = match wanted {
        "u32" => "a whole number up to 4294967295",
        "u64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        other => other,
    };
    format!("must be {wanted}, not the {given}")
}

/// Tokens that a replica's KV memory holds, and how that is known: `configured` or `reported`.
#[derive(Debug, Serialize)]
pub struct ReplicaKv {
    tokens: u64,
    source: &'static str,
}

impl ReplicaKv {
    /// Where it is known.
    pub fn of(replica: &ReplicaView) -> Option<Self> {
        replica.kv().map(|(tokens, source)| Self { tokens: tokens.0, source: source.name() })
    }
}

/// What a replica's rows cost, as the fleet fitted it to their times. A row takes `decode_ns` for each token of its
/// output, `decode_ns_per_sequence` more for each row there, and `prefill_ns_per_token` for each prompt token that the
/// replica is sent meanwhile.
#[derive(Debug, Serialize)]
pub struct ReplicaCost {
    decode_ns: u64,
    decode_ns_per_sequence: u64,
    prefill_ns_per_token: u64,
}

impl ReplicaCost {
    /// Once it is fitted.
    pub fn of(replica: &ReplicaView) -> Option<Self> {
        replica.cost.map(|CostModel { decode_base, decode_per_sequence, prefill_per_token, .. }| Self {
            decode_ns: decode_base.0,
            decode_ns_per_sequence: decode_per_sequence.0,
            prefill_ns_per_token: prefill_per_token.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wrong_field_of_an_entry_is_named_with_what_it_must_be() {
        for (field, value, told) in [
            ("rows_max", json!("5"), "must be a whole number up to 4294967295, not the string \"5\""),
            ("rows_max", json!(-5), "must be a whole number up to 4294967295, not the integer `-5`"),
            ("rows_max", json!(1_u64 << 32), "must be a whole number up to 4294967295, not the integer"),
            ("tokens_max", json!("many"), "must be a whole number, not the string \"many\""),
            ("try_ms_max", json!(1.5), "must be a whole number, not the floating point `1.5`"),
            ("priority", json!("yes"), "must be true or false, not the string \"yes\""),
            ("prompt_price", json!([]), "must be a number, not the sequence"),
            ("name", json!(5), "must be a string, not the integer `5`"),
            ("dialect", json!("tgi"), "unknown variant `tgi`, expected one of `openai`, `vllm`"),
            ("colour", json!("red"), "unknown field `colour`, expected one of `name`"),
        ] {
            let mut body = json!({"url": "http://a"});
            body[field] = value.clone();
            match entry(body) {
                Err(RequestError::Invalid { field: named, reason }) => {
                    assert_eq!(named, field);
                    assert!(reason.starts_with(told), "{field} {value}: {reason:?} lacks {told:?}");
                }
                other => panic!("{field} {value} gave {other:?}"),
            }
        }
        let read = entry(json!({"url": "http://a", "rows_max": 5, "tokens_max": null})).expect("good");
        assert_eq!((read.rows_max, read.tokens_max, read.url.as_deref()), (5, None, Some("http://a")));
        assert!(entry(json!([1])).is_err());
    }
}
