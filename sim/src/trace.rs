//! The trace format `relserve-trace/1`: relQueries as lengths. Tokens are made up so that exactly the
//! segments the trace calls shared are equal.

use std::sync::Arc;

use base::{
    Generation, RelQueryId, ServiceClass, Span, SpanKind, Submission, TenantId, Time, TokenCount, TokenId,
    WorkItem,
};
use serde::{Deserialize, Serialize};

/// A trace that is not one.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Not the JSON expected.
    #[error("not a trace: {0}")]
    Json(#[from] serde_json::Error),
    /// Another format.
    #[error("the schema is `{0}`, not `relserve-trace/1`")]
    Schema(String),
    /// A number that cannot be.
    #[error("relQuery {relquery}: {reason}")]
    Invalid {
        relquery: u64,
        /// What is wrong.
        reason: &'static str,
    },
}

/// A trace: what arrives when, in lengths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// `relserve-trace/1`.
    pub schema: String,
    pub name: String,
    /// Whatever its maker says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The dataset whose lengths it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<String>,
    /// RelQueries per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// What it was drawn from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Prompt prefixes.
    pub templates: Vec<TraceTemplate>,
    /// What arrives, by time and id.
    pub relqueries: Vec<TraceRelQuery>,
}

/// A prompt prefix that every row of every relQuery with this template shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceTemplate {
    pub id: u64,
    /// Its length in tokens.
    pub tokens: u64,
}

/// One relQuery of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceRelQuery {
    pub rel_id: u64,
    /// Whose it is.
    pub tenant: String,
    /// The tenant's weight; 1 where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// What kind of task it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Who waits; interactive where it is not said. Policies of the paper know no classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ServiceClass>,
    /// When it arrives, in seconds.
    pub arrival: f64,
    /// Its prefix.
    pub template_id: u64,
    /// OL(R).
    pub ol: u64,
    /// Lengths of the values that several of its rows share.
    pub groups: Vec<u64>,
    /// `[group or -1, unique tokens, true output tokens]` per row.
    pub rows: Vec<[i64; 3]>,
    /// Steps that give each row its output, where they are fewer than its tokens: constraints force some, and
    /// guesses come true. 0, or no list: one a token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samplings: Vec<u64>,
}

/// What a simulation needs of a trace.
#[derive(Clone, Debug, Default)]
pub struct Lowered {
    /// The relQueries, in file order.
    pub submissions: Vec<Submission>,
    /// Names of the tenants, by their number.
    pub tenants: Vec<String>,
    /// True output length of each row, by its seed.
    pub lengths: Vec<(u64, u64)>,
    /// Steps that give it, by the row's seed, where they are told.
    pub samplings: Vec<(u64, u64)>,
}

/// Hands out segments: a segment is one token id repeated, so different ones differ in their first token.
#[derive(Default)]
struct Segments(u32);

impl Segments {
    fn next(&mut self) -> TokenId {
        self.0 += 1;
        TokenId(self.0)
    }
}

impl Trace {
    /// Reads a trace.
    pub fn parse(json: &str) -> Result<Self, TraceError> {
        let trace: Self = serde_json::from_str(json)?;
        match trace.schema.as_str() {
            "relserve-trace/1" => Ok(trace),
            other => Err(TraceError::Schema(other.to_owned())),
        }
    }

    /// Drops the oldest relQueries, so many that what stays weighs no more than `most` in a replay. The first that
    /// stays arrives when the trace begins.
    pub fn keep_newest(&mut self, most: TokenCount) {
        let mut left = most.0;
        let fits = |relquery: &&TraceRelQuery| {
            let template = self.templates.iter().find(|template| template.id == relquery.template_id);
            let after =
                left.checked_sub(relquery.replay_weight(template.map_or(0, |template| template.tokens)));
            left = after.unwrap_or(left);
            after.is_some()
        };
        let kept = self.relqueries.iter().rev().take_while(fits).count();
        self.relqueries.drain(..self.relqueries.len() - kept);
        let from = self.relqueries.first().map_or(0.0, |first| first.arrival);
        self.relqueries.iter_mut().for_each(|relquery| relquery.arrival -= from);
    }

    /// Turns lengths into submissions.
    pub fn lower(&self) -> Result<Lowered, TraceError> {
        let mut segments = Segments::default();
        let templates: Vec<(TraceTemplate, TokenId)> =
            self.templates.iter().map(|template| (*template, segments.next())).collect();
        let mut lowered = Lowered::default();
        for relquery in &self.relqueries {
            let number = lowered.tenants.iter().position(|name| *name == relquery.tenant);
            let number = number.unwrap_or_else(|| {
                lowered.tenants.push(relquery.tenant.clone());
                lowered.tenants.len() - 1
            });
            relquery.lower(TenantId(number as u64), &templates, &mut segments, &mut lowered)?;
        }
        Ok(lowered)
    }
}

/// An output token in prompt tokens, where the size of a replay is bounded: what its step weighs.
const OUTPUT_WEIGHT: u64 = 16;

/// What a relQuery with so many prompt and output tokens weighs in a replay, in prompt tokens.
pub fn replay_weight(prompt: u64, output: u64) -> u64 {
    prompt.saturating_add(output.saturating_mul(OUTPUT_WEIGHT))
}

impl TraceRelQuery {
    /// What it weighs in a replay, where its template has so many tokens; a row without an output counts with its
    /// prompt alone.
    fn replay_weight(&self, template: u64) -> u64 {
        let shared = |group: i64| usize::try_from(group).ok().and_then(|group| self.groups.get(group));
        let whole = |tokens: i64| u64::try_from(tokens).unwrap_or(0);
        let prompt =
            |[group, unique, _]: &[i64; 3]| template + shared(*group).copied().unwrap_or(0) + whole(*unique);
        let prompts = self.rows.iter().map(prompt).sum();
        replay_weight(prompts, self.rows.iter().map(|row| whole(row[2])).sum())
    }

    fn lower(
        &self,
        tenant: TenantId,
        templates: &[(TraceTemplate, TokenId)],
        segments: &mut Segments,
        lowered: &mut Lowered,
    ) -> Result<(), TraceError> {
        let invalid = |reason| TraceError::Invalid { relquery: self.rel_id, reason };
        let template = templates.iter().find(|(template, _)| template.id == self.template_id);
        let (template, template_token) = template.ok_or_else(|| invalid("unknown template"))?;
        if !self.arrival.is_finite() || self.arrival < 0.0 {
            return Err(invalid("the arrival is not a time"));
        }
        let weight = self.weight.unwrap_or(1.0);
        if !(0.001..=1e6).contains(&weight) {
            return Err(invalid("the weight is not in 0.001 to 1000000"));
        }
        let weight = (weight * 1_000.0).round() as u32;
        let groups: Vec<TokenId> = self.groups.iter().map(|_| segments.next()).collect();
        let output_max = TokenCount(self.ol);
        let generation = Arc::new(Generation { output_max, ..Generation::default() });
        let mut items = Vec::with_capacity(self.rows.len());
        for (row, [group, unique, out]) in self.rows.iter().enumerate() {
            let mut prompt = PromptBuilder::default();
            prompt.push(SpanKind::Template, template.tokens, *template_token);
            if let Ok(group) = usize::try_from(*group) {
                let tokens = self.groups.get(group).ok_or_else(|| invalid("unknown group"))?;
                prompt.push(SpanKind::Field, *tokens, groups[group]);
            }
            let unique = u64::try_from(*unique).map_err(|_| invalid("a negative length"))?;
            prompt.push(SpanKind::Field, unique, segments.next());
            let seed = lowered.lengths.len() as u64;
            let out = u64::try_from(*out).map_err(|_| invalid("a negative length"))?;
            lowered.lengths.push((seed, out));
            lowered.samplings.extend(self.samplings.get(row).map(|samplings| (seed, *samplings)));
            items.push(prompt.into_item(row as u32, &generation, seed));
        }
        lowered.submissions.push(Submission {
            id: RelQueryId(self.rel_id),
            tenant,
            weight,
            scope: 0,
            class: self.class.unwrap_or_default(),
            arrival: Time((self.arrival * 1e9).round() as u64),
            deadline: None,
            items,
        });
        Ok(())
    }
}

/// A prompt in the making.
#[derive(Default)]
struct PromptBuilder {
    tokens: Vec<TokenId>,
    spans: Vec<Span>,
}

impl PromptBuilder {
    fn push(&mut self, kind: SpanKind, tokens: u64, token: TokenId) {
        self.tokens.extend(std::iter::repeat_n(token, tokens as usize));
        self.spans.push(Span { kind, tokens: TokenCount(tokens) });
    }

    fn into_item(self, row: u32, generation: &Arc<Generation>, seed: u64) -> WorkItem {
        WorkItem {
            row,
            prompt: self.tokens.into(),
            spans: self.spans.into(),
            sections: Arc::default(),
            generation: Arc::clone(generation),
            seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_share_what_the_trace_says_and_no_more() {
        let json = r#"{"schema":"relserve-trace/1","name":"t","templates":[{"id":4,"tokens":2}],
            "relqueries":[{"rel_id":1,"tenant":"a","arrival":0.25,"template_id":4,"ol":3,"groups":[2],
            "rows":[[0,1,1],[0,1,2],[-1,3,3]]}]}"#;
        let lowered = Trace::parse(json).and_then(|trace| trace.lower()).expect("a trace");
        let submission = &lowered.submissions[0];
        assert_eq!(submission.arrival, Time(250_000_000));
        let prompts: Vec<&[TokenId]> = submission.items.iter().map(|item| &*item.prompt).collect();
        assert_eq!(prompts[0][..4], prompts[1][..4]);
        assert_ne!(prompts[0][4], prompts[1][4]);
        assert_eq!(prompts[0][..2], prompts[2][..2]);
        assert_ne!(prompts[0][2], prompts[2][2]);
        assert_eq!(lowered.lengths, [(0, 1), (1, 2), (2, 3)]);
    }

    #[test]
    fn what_is_not_a_trace_is_refused() {
        assert!(matches!(Trace::parse("{}"), Err(TraceError::Json(_))));
        let other = r#"{"schema":"other/1","name":"t","templates":[],"relqueries":[]}"#;
        assert!(matches!(Trace::parse(other), Err(TraceError::Schema(_))));
    }

    #[test]
    fn a_row_may_say_in_how_many_steps_it_gets_its_output() {
        let json = r#"{"schema":"relserve-trace/1","name":"t","templates":[{"id":0,"tokens":2}],
            "relqueries":[{"rel_id":1,"tenant":"a","arrival":0,"template_id":0,"ol":9,"groups":[],
            "rows":[[-1,1,8],[-1,1,8]],"samplings":[2,0]}]}"#;
        let trace = Trace::parse(json).expect("a trace");
        let lowered = trace.lower().expect("it can be replayed");
        assert_eq!((lowered.lengths, lowered.samplings), (vec![(0, 8), (1, 8)], vec![(0, 2), (1, 0)]));
        let steps = |trace: &Trace| {
            let replay = crate::replay(trace, scheduler::Policy::Fcfs, &crate::ReplayConfig::default());
            replay.expect("a replay").counts.iters
        };
        let plain = |rows: &[[i64; 3]]| {
            let mut plain = trace.clone();
            plain.relqueries[0].samplings.clear();
            plain.relqueries[0].rows = rows.to_vec();
            steps(&plain)
        };
        assert_eq!(steps(&trace), plain(&[[-1, 1, 8], [-1, 1, 8]]), "the other row takes a step a token");
        let mut both = trace.clone();
        both.relqueries[0].samplings = vec![2, 2];
        assert_eq!(steps(&both), plain(&[[-1, 1, 2], [-1, 1, 2]]), "both get theirs in two");
    }
}
