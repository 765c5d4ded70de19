//! How each dialect writes what changes a row's logits and the form of its text, or that it cannot.

use base::{Generation, LogitAdjustments};
use serde_json::{Map, Value, json};

use crate::config::Dialect;

/// Writes the fields of a row that asks for such; the name of the first that this dialect does not know.
pub(super) fn write(
    generation: &Generation,
    dialect: Dialect,
    fields: &mut Map<String, Value>,
) -> Result<(), &'static str> {
    if let Some(adjustments) = &generation.adjustments {
        write_adjustments(adjustments, dialect, fields)?;
    }
    let knows_more = matches!(dialect, Dialect::Vllm | Dialect::Sglang);
    if generation.shows_stop {
        match dialect {
            Dialect::Vllm => fields.insert("include_stop_str_in_output".into(), json!(true)),
            Dialect::Sglang => fields.insert("no_stop_trim".into(), json!(true)),
            Dialect::Openai | Dialect::LlamaCpp => return Err("include_stop_str_in_output"),
        };
    }
    if generation.shows_special {
        if !knows_more {
            return Err("skip_special_tokens");
        }
        fields.insert("skip_special_tokens".into(), json!(false));
    }
    if let Some(variables) = &generation.template_variables {
        let variables: Option<Value> = serde_json::from_str(variables).ok();
        match variables.filter(|_| dialect != Dialect::Openai) {
            Some(variables) => fields.insert("chat_template_kwargs".into(), variables),
            None => return Err("chat_template_kwargs"),
        };
    }
    Ok(())
}

fn write_adjustments(
    adjustments: &LogitAdjustments,
    dialect: Dialect,
    fields: &mut Map<String, Value>,
) -> Result<(), &'static str> {
    let LogitAdjustments {
        output_min,
        logit_bias,
        allowed,
        repetition_penalty,
        frequency_penalty,
        presence_penalty,
        min_p,
    } = adjustments;
    for (name, penalty) in [("frequency_penalty", frequency_penalty), ("presence_penalty", presence_penalty)]
    {
        if *penalty != 0.0 {
            fields.insert(name.into(), json!(penalty));
        }
    }
    if !logit_bias.is_empty() {
        let biases: Map<String, Value> =
            logit_bias.iter().map(|(token, bias)| (token.0.to_string(), json!(bias))).collect();
        fields.insert("logit_bias".into(), Value::Object(biases));
    }
    if let Some(allowed) = allowed {
        if dialect != Dialect::Vllm {
            return Err("allowed_token_ids");
        }
        let ids: Vec<u32> = allowed.iter().map(|token| token.0).collect();
        fields.insert("allowed_token_ids".into(), json!(ids));
    }
    if *repetition_penalty != 1.0 {
        let name = match dialect {
            Dialect::Vllm | Dialect::Sglang => "repetition_penalty",
            Dialect::LlamaCpp => "repeat_penalty",
            Dialect::Openai => return Err("repetition_penalty"),
        };
        fields.insert(name.into(), json!(repetition_penalty));
    }
    if *min_p != 0.0 {
        if dialect == Dialect::Openai {
            return Err("min_p");
        }
        fields.insert("min_p".into(), json!(min_p));
    }
    if output_min.0 > 0 {
        if !matches!(dialect, Dialect::Vllm | Dialect::Sglang) {
            return Err("min_tokens");
        }
        fields.insert("min_tokens".into(), json!(output_min.0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use base::{TokenCount, TokenId};

    use super::*;

    fn of(generation: &Generation, dialect: Dialect) -> Result<Value, &'static str> {
        let mut fields = Map::new();
        write(generation, dialect, &mut fields).map(|()| Value::Object(fields))
    }

    #[test]
    fn each_dialect_has_its_words_and_what_it_lacks_is_named() {
        let adjusted =
            |adjustments| Generation { adjustments: Some(Box::new(adjustments)), ..Generation::default() };
        let openai = LogitAdjustments {
            presence_penalty: 0.5,
            frequency_penalty: -1.0,
            logit_bias: vec![(TokenId(3), -100.0), (TokenId(7), 0.5)],
            ..LogitAdjustments::default()
        };
        let written = json!({"presence_penalty": 0.5, "frequency_penalty": -1.0, "logit_bias": {"3": -100.0, "7": 0.5}});
        let all = [Dialect::Openai, Dialect::Vllm, Dialect::Sglang, Dialect::LlamaCpp];
        for dialect in all {
            assert_eq!(of(&adjusted(openai.clone()), dialect), Ok(written.clone()), "{dialect:?}");
        }
        let more = adjusted(LogitAdjustments {
            repetition_penalty: 1.5,
            min_p: 0.25,
            ..LogitAdjustments::default()
        });
        let vllm = json!({"repetition_penalty": 1.5, "min_p": 0.25});
        assert_eq!(of(&more, Dialect::Vllm), Ok(vllm.clone()));
        assert_eq!(of(&more, Dialect::Sglang), Ok(vllm));
        assert_eq!(of(&more, Dialect::LlamaCpp), Ok(json!({"repeat_penalty": 1.5, "min_p": 0.25})));
        assert_eq!(of(&more, Dialect::Openai), Err("repetition_penalty"));
        let listed = Some(vec![TokenId(3), TokenId(9)]);
        let listed = adjusted(LogitAdjustments { allowed: listed, ..LogitAdjustments::default() });
        assert_eq!(of(&listed, Dialect::Vllm), Ok(json!({"allowed_token_ids": [3, 9]})));
        for dialect in [Dialect::Openai, Dialect::Sglang, Dialect::LlamaCpp] {
            assert_eq!(of(&listed, dialect), Err("allowed_token_ids"), "{dialect:?}");
        }
        let late = adjusted(LogitAdjustments { output_min: TokenCount(5), ..LogitAdjustments::default() });
        assert_eq!(of(&late, Dialect::Vllm), Ok(json!({"min_tokens": 5})));
        assert_eq!(of(&late, Dialect::LlamaCpp), Err("min_tokens"));
        let shown = Generation { shows_stop: true, shows_special: true, ..Generation::default() };
        let vllm = json!({"include_stop_str_in_output": true, "skip_special_tokens": false});
        assert_eq!(of(&shown, Dialect::Vllm), Ok(vllm));
        let sglang = json!({"no_stop_trim": true, "skip_special_tokens": false});
        assert_eq!(of(&shown, Dialect::Sglang), Ok(sglang));
        assert_eq!(of(&shown, Dialect::Openai), Err("include_stop_str_in_output"));
        let variables = Some(r#"{"enable_thinking":true}"#.to_owned());
        let thinking = Generation { template_variables: variables, ..Generation::default() };
        let written = json!({"chat_template_kwargs": {"enable_thinking": true}});
        assert_eq!(of(&thinking, Dialect::LlamaCpp), Ok(written));
        assert_eq!(of(&thinking, Dialect::Openai), Err("chat_template_kwargs"));
    }
}
