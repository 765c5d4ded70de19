//! `best_of` of completions: more answers are made to each prompt than are told, and the likeliest are.

use std::cmp::Ordering;
use std::sync::Arc;

use serving::error::RequestError;
use serving::relquery_state::AnswerRow;

use super::{ANSWERS_MAX, Common};
use crate::json::JsonFields;

const FIELD: &str = "best_of";

/// Which of the answers to each prompt are told, where more are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestOf {
    /// Answers that are made to each prompt.
    made: u32,
    /// How many of them are told.
    told: u32,
    /// Whether the request itself asks how likely tokens are.
    pub(super) tells_logprobs: bool,
}

impl BestOf {
    /// Takes the field. Where more answers are made than are told, `n` becomes how many are made, and each is asked how
    /// likely its tokens are.
    pub(super) fn take(fields: &mut JsonFields, common: &mut Common) -> Result<Option<Self>, RequestError> {
        let made = fields.integer(FIELD, 1, u64::from(ANSWERS_MAX))?;
        let told = common.n;
        let made = made.and_then(|made| u32::try_from(made).ok()).unwrap_or(1);
        match made.cmp(&told) {
            Ordering::Equal => return Ok(None),
            // It is the default, and some clients send every default.
            Ordering::Less if made == 1 => return Ok(None),
            Ordering::Less => return fields.bad(FIELD, format!("must be at least `n`, {told}")),
            Ordering::Greater => {}
        }
        if common.stream {
            let reason =
                "must be no more than `n` with `stream`: which answers are the best is known at the end";
            return fields.bad(FIELD, reason);
        }
        common.n = made;
        let generation = Arc::make_mut(&mut common.sampling.generation);
        let tells_logprobs = generation.logprobs.is_some();
        generation.logprobs.get_or_insert(0);
        Ok(Some(Self { made, told, tells_logprobs }))
    }

    /// Numbers of the rows that are told: of each prompt the likeliest first, by the mean log probability of a token.
    /// What has no tokens comes last.
    pub(super) fn told(self, rows: &[AnswerRow]) -> Vec<usize> {
        let mut told = Vec::new();
        let made = self.made as usize;
        for first in (0..rows.len()).step_by(made) {
            let mut answers: Vec<(usize, f64)> =
                (first..rows.len()).take(made).map(|place| (place, mean(&rows[place]))).collect();
            // Of equals the first one comes first.
            answers.sort_by(|(_, one), (_, other)| other.total_cmp(one));
            told.extend(answers.iter().take(self.told as usize).map(|(place, _)| place));
        }
        told
    }
}

/// Mean log probability of an answer's tokens.
fn mean(row: &AnswerRow) -> f64 {
    if row.logprobs.is_empty() {
        return f64::NEG_INFINITY;
    }
    let sum: f64 = row.logprobs.iter().map(|token| token.chosen.logprob).sum();
    sum / row.logprobs.len() as f64
}

#[cfg(test)]
mod tests {
    use base::{Logprob, RelQueryId, TenantId, Time, TokenLogprob};
    use serving::relquery_state::{Arrival, RelQueryKind, RelQueryState};

    use super::*;
    use crate::config::LimitsConfig;
    use crate::json;
    use crate::wire::openai::CompletionRequest;
    use crate::wire::openai::tests::with_context;

    fn read(more: &str) -> Result<CompletionRequest, RequestError> {
        let body = format!("{{\"model\":\"m\",\"prompt\":\"a\",{more}}}");
        let fields = json::object(body.as_bytes())?;
        with_context(&LimitsConfig::default(), |context| CompletionRequest::read(fields, context))
    }

    #[test]
    fn more_answers_may_be_made_than_are_told_and_their_tokens_are_scored() {
        for (more, n, best_of, logprobs) in [
            (r#""n":2"#, 2, None, None),
            (r#""n":2,"best_of":2"#, 2, None, None),
            (r#""n":2,"best_of":1"#, 2, None, None),
            (r#""n":2,"best_of":2,"stream":true"#, 2, None, None),
            (r#""best_of":3"#, 3, Some((3, 1, false)), Some(0)),
            (r#""n":2,"best_of":3,"logprobs":4"#, 3, Some((3, 2, true)), Some(4)),
        ] {
            let asked = read(more).expect("valid");
            let found = asked.best_of.map(|best| (best.made, best.told, best.tells_logprobs));
            let generation = &asked.common.sampling.generation;
            assert_eq!((asked.common.n, found, generation.logprobs), (n, best_of, logprobs), "{more}");
        }
        for more in
            [r#""n":3,"best_of":2"#, r#""best_of":129"#, r#""best_of":0"#, r#""best_of":2,"stream":true"#]
        {
            let refused = read(more);
            let is_named = matches!(&refused, Err(RequestError::Invalid { field, .. }) if field == FIELD);
            assert!(is_named, "{more}: {refused:?}");
        }
    }

    #[test]
    fn the_likeliest_answers_to_each_prompt_are_told_by_the_mean_of_their_tokens() {
        let arrival = Arrival { unix_ms: 0, time: Time(0) };
        let relquery = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 6, arrival);
        // The second answer to the first prompt has a lower sum than the first one, and a higher mean.
        let of_rows: [&[f64]; 6] = [&[-1.0], &[-0.5, -0.5, -0.5], &[], &[-3.0], &[-2.0], &[-2.0]];
        for (row, logprobs) in (0..).zip(of_rows) {
            let told = |logprob: &f64| {
                let chosen = Logprob { id: None, token: "a".into(), logprob: *logprob, bytes: None };
                TokenLogprob { chosen, is_hidden: false, top: Vec::new() }
            };
            relquery.keep_logprobs(row, &logprobs.iter().map(told).collect::<Vec<_>>());
        }
        let best = BestOf { made: 3, told: 2, tells_logprobs: false };
        assert_eq!(best.told(&relquery.read().rows), [1, 0, 4, 5]);
    }
}
