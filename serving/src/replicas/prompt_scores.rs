//! How likely the tokens of a prompt were, as vLLM's servers tell it (`prompt_logprobs`): a list of null for the
//! first token, and then of objects by token ids, of the token itself and the likeliest. Pure.

use std::sync::Arc;

use base::{LikelyPromptToken, PromptLikelihood, PromptToken, TokenId};
use serde_json::{Map, Value};

/// What a logarithm of a probability may be above 0 by how a server rounds.
const ROUNDING_MAX: f64 = 1e-2;

/// Bytes of a token's text: no tokenizer's has more.
const TOKEN_BYTES_MAX: usize = 1_024;

/// What a row asks of its prompt's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptScoring {
    /// How many of the likeliest are told beside each.
    pub top: u32,
    pub ids: PromptIds,
}

/// Which tokens a prompt has at its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptIds {
    /// Those that it was sent as.
    Sent(Arc<[TokenId]>),
    /// Those that the server made of its text, and tells; so many at most.
    OfText { most: usize },
}

/// A token with what is said of it.
struct Scored {
    id: TokenId,
    text: String,
    logprob: f64,
    rank: u32,
}

/// What a reply tells of its prompt's tokens; why it is not what was asked for.
pub fn told(reply: &Value, asked: &PromptScoring) -> Result<Arc<[PromptToken]>, String> {
    let scores = place(reply, "prompt_logprobs").as_array();
    let scores = scores.ok_or("its answer does not say how likely the prompt's tokens are")?;
    let ids = match &asked.ids {
        PromptIds::Sent(ids) => Arc::clone(ids),
        PromptIds::OfText { most } => told_ids(reply, *most)?,
    };
    if scores.len() != ids.len() {
        let (told, tokens) = (scores.len(), ids.len());
        return Err(format!("its answer scores {told} tokens of a prompt of {tokens}"));
    }
    let token = |(at, (scores, id)): (usize, (&Value, &TokenId))| match (at, scores) {
        // Nothing stands before the first: of it not even its text is told.
        (0, Value::Null) => Ok(PromptToken { id: *id, text: String::new(), bytes: None, likelihood: None }),
        (1.., Value::Object(scores)) => {
            let token = scored(*id, scores, asked.top);
            token.map_err(|reason| format!("its answer scores token {at} of the prompt: {reason}"))
        }
        _ => Err(format!("its answer does not score token {at} of the prompt as vLLM does")),
    };
    scores.iter().zip(&*ids).enumerate().map(token).collect()
}

/// Where a reply tells something of the prompt: one to a conversation at the top, one to a completion in its choice.
fn place<'a>(reply: &'a Value, name: &str) -> &'a Value {
    match &reply[name] {
        Value::Null => &reply["choices"][0][name],
        told => told,
    }
}

/// The ids of a prompt's tokens as the server tells them.
fn told_ids(reply: &Value, most: usize) -> Result<Arc<[TokenId]>, String> {
    let ids = place(reply, "prompt_token_ids").as_array();
    let ids = ids.ok_or("its answer does not say which tokens the prompt has")?;
    if ids.len() > most {
        return Err(format!("its answer tells {} tokens of a prompt that has {most} at most", ids.len()));
    }
    let id = |id: &Value| Some(TokenId(u32::try_from(id.as_u64()?).ok()?));
    let ids: Option<Arc<[TokenId]>> = ids.iter().map(id).collect();
    ids.ok_or_else(|| "its answer has a token of the prompt that is no id".to_owned())
}

/// A token of which is told how likely it was, beside the `top` likeliest.
fn scored(id: TokenId, scores: &Map<String, Value>, top: u32) -> Result<PromptToken, String> {
    if scores.len() > top as usize + 1 {
        return Err(format!("{} beside it, and {top} were asked for", scores.len() - 1));
    }
    let mut all = scores.iter().map(one).collect::<Result<Vec<Scored>, String>>()?;
    let own = all.iter().position(|one| one.id == id).ok_or("the token itself is missing")?;
    let (text, logprob, rank) = (all[own].text.clone(), all[own].logprob, all[own].rank);
    all.sort_by(|one, other| one.rank.cmp(&other.rank).then(other.logprob.total_cmp(&one.logprob)));
    // The token itself is told beyond them where it is none of them.
    all.retain(|one| one.rank <= top);
    all.truncate(top as usize);
    let likely = |one: Scored| LikelyPromptToken { id: one.id, text: one.text, logprob: one.logprob };
    let top = all.into_iter().map(likely).collect();
    Ok(PromptToken { id, text, bytes: None, likelihood: Some(PromptLikelihood { logprob, rank, top }) })
}

/// One of the tokens that are told at a place.
fn one((id, told): (&String, &Value)) -> Result<Scored, String> {
    let number: u32 = id.parse().map_err(|_| "a token has no id")?;
    let logprob = told["logprob"].as_f64().filter(|own| own.is_finite() && *own <= ROUNDING_MAX);
    let logprob = logprob.ok_or_else(|| format!("token {number} has no logarithm of a probability"))?;
    let rank = told["rank"].as_u64().and_then(|rank| u32::try_from(rank).ok()).filter(|rank| *rank > 0);
    let rank = rank.ok_or_else(|| format!("token {number} has no rank"))?;
    let text = told["decoded_token"].as_str().unwrap_or_default();
    if text.len() > TOKEN_BYTES_MAX {
        return Err(format!("the text of token {number} has more than {TOKEN_BYTES_MAX} bytes"));
    }
    Ok(Scored { id: TokenId(number), text: text.to_owned(), logprob: logprob.min(0.0), rank })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn score(logprob: f64, rank: u32, text: &str) -> Value {
        json!({"logprob": logprob, "rank": rank, "decoded_token": text})
    }

    /// Scores of three tokens: the second is none of the likeliest two, the third is the second of them.
    fn scores() -> Value {
        json!([null,
            {"8": score(-4.5, 9, " b"), "5": score(-0.5, 1, "x"), "6": score(-1.5, 2, "y")},
            {"9": score(-1.25, 2, "é"), "5": score(-0.25, 1, "x")}])
    }

    fn sent(top: u32) -> PromptScoring {
        PromptScoring { top, ids: PromptIds::Sent([7, 8, 9].map(TokenId).into()) }
    }

    /// Its log probability, its rank, and the likeliest: ids, texts, log probabilities.
    type Likelihood<'a> = (f64, u32, &'a [(u32, &'a str, f64)]);

    fn token(id: u32, text: &str, likelihood: Option<Likelihood<'_>>) -> PromptToken {
        let likely = |(id, text, logprob): &(u32, &str, f64)| LikelyPromptToken {
            id: TokenId(*id),
            text: (*text).to_owned(),
            logprob: *logprob,
        };
        let likelihood = likelihood.map(|(logprob, rank, top)| PromptLikelihood {
            logprob,
            rank,
            top: top.iter().map(likely).collect(),
        });
        PromptToken { id: TokenId(id), text: text.into(), bytes: None, likelihood }
    }

    #[test]
    fn a_prompts_scores_are_read_where_both_routes_tell_them() {
        let expected = [
            token(7, "", None),
            token(8, " b", Some((-4.5, 9, &[(5, "x", -0.5), (6, "y", -1.5)]))),
            token(9, "é", Some((-1.25, 2, &[(5, "x", -0.25), (9, "é", -1.25)]))),
        ];
        let ids = json!([7, 8, 9]);
        let chat = json!({"choices": [{}], "prompt_logprobs": scores(), "prompt_token_ids": ids});
        let choice = json!({"prompt_logprobs": scores(), "prompt_token_ids": ids});
        let completion = json!({"choices": [choice], "prompt_logprobs": null});
        let by_itself = PromptScoring { top: 2, ids: PromptIds::OfText { most: 3 } };
        for reply in [chat, completion] {
            for asked in [sent(2), by_itself.clone()] {
                assert_eq!(told(&reply, &asked).as_deref(), Ok(&expected[..]), "{reply}");
            }
        }
        let scores = json!([null, {"8": score(1e-3, 1, "b")}, {"9": score(-2.0, 3, "c")}]);
        let alone = json!({ "prompt_logprobs": scores });
        let expected =
            [token(7, "", None), token(8, "b", Some((0.0, 1, &[]))), token(9, "c", Some((-2.0, 3, &[])))];
        assert_eq!(told(&alone, &sent(0)).as_deref(), Ok(&expected[..]), "rounded above 0");
    }

    #[test]
    fn what_is_not_what_was_asked_for_is_no_answer() {
        let with = |scores: Value| json!({"choices": [{"prompt_logprobs": scores}]});
        let second = |second: Value| with(json!([null, second, {"9": score(-1.0, 1, "")}]));
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        for (reply, asked, part) in [
            (json!({}), sent(2), "does not say how likely"),
            (with(json!([null, {}])), sent(2), "scores 2 tokens of a prompt of 3"),
            (with(json!([{}, {}, {}])), sent(2), "does not score token 0"),
            (with(json!([null, null, null])), sent(2), "does not score token 1"),
            (with(scores()), sent(1), "2 beside it, and 1 were asked for"),
            (second(json!({"5": score(-1.0, 1, "x")})), sent(2), "itself is missing"),
            (second(json!({"x": score(-1.0, 1, "x")})), sent(2), "has no id"),
            (second(json!({"8": {"rank": 1}})), sent(2), "no logarithm"),
            (second(json!({"8": score(0.5, 1, "x")})), sent(2), "no logarithm"),
            (second(json!({"8": score(-0.5, 0, "x")})), sent(2), "no rank"),
            (second(json!({"8": score(-0.5, 1, &long)})), sent(2), "more than 1024 bytes"),
        ] {
            let reason = told(&reply, &asked).expect_err(part);
            assert!(reason.contains(part), "{reason}, not {part}");
        }
        let by_itself = |ids: Value, most: usize| {
            let reply = json!({"prompt_logprobs": scores(), "prompt_token_ids": ids});
            told(&reply, &PromptScoring { top: 2, ids: PromptIds::OfText { most } }).expect_err("refused")
        };
        assert!(by_itself(json!(null), 9).contains("does not say which tokens"));
        assert!(by_itself(json!([7, 8, 9]), 2).contains("has 2 at most"));
        assert!(by_itself(json!([7, -8, 9]), 3).contains("no id"));
    }
}
