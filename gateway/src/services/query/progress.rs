//! One span query on its way: which of its calls run, have ended, or wait for what.

use std::sync::Arc;

use base::{End, Generation};
use ir::span::{Call, CallId, Plan};
use serving::error::RequestError;
use serving::relquery_state::Usage;

use super::Planned;
use super::prompt::{Ask, CallOutput, Outputs};

/// A call that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// What it says.
    pub text: Arc<str>,
    /// Why it ended.
    pub end: End,
    /// Its tokens.
    pub usage: Usage,
}

/// What came of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryOutcome {
    /// Its calls by number, or why it has no result.
    pub ended: Result<Vec<Ended>, RequestError>,
    /// Tokens of all its rows, spans computed ahead among them.
    pub usage: Usage,
}

/// A query on its way.
pub(super) struct QueryProgress {
    pub(super) index: usize,
    pub(super) plan: Arc<Plan>,
    pub(super) generations: Arc<[Arc<Generation>]>,
    /// First tokens of each span that its calls compute again.
    pub(super) repair_tokens: u32,
    has_begun: Vec<bool>,
    ended: Vec<Option<Ended>>,
    /// How many have not.
    left: usize,
    pub(super) outputs: Arc<Outputs>,
    /// Tokens of all its rows, spans computed ahead among them.
    pub(super) usage: Usage,
    error: Option<RequestError>,
    is_new: bool,
}

impl QueryProgress {
    pub(super) fn new(planned: &Planned) -> Self {
        let calls = planned.plan.calls.len();
        Self {
            index: planned.index,
            plan: Arc::clone(&planned.plan),
            generations: Arc::clone(&planned.generations),
            repair_tokens: planned.repair_tokens,
            has_begun: vec![false; calls],
            ended: vec![None; calls],
            left: calls,
            outputs: Arc::new(vec![None; calls]),
            usage: Usage::default(),
            error: None,
            is_new: true,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.error.is_some() || self.left == 0
    }

    pub(super) fn fail(&mut self, error: RequestError) {
        if !self.is_over() {
            self.error = Some(error);
        }
    }

    pub(super) fn outcome(self) -> QueryOutcome {
        let ended = self.error.map_or_else(|| Ok(self.ended.into_iter().flatten().collect()), Err);
        QueryOutcome { ended, usage: self.usage }
    }

    /// A call has ended, with this output.
    pub(super) fn end(&mut self, id: CallId, ended: Ended, output: CallOutput) {
        self.usage += ended.usage;
        self.left -= usize::from(self.ended[id.0].replace(ended).is_none());
        Arc::make_mut(&mut self.outputs)[id.0] = Some(output);
    }

    /// A call that has ended.
    pub(super) fn ended(&self, id: CallId) -> Option<&Ended> {
        self.ended[id.0].as_ref()
    }

    /// What can begin now: calls that have their inputs, and spans of those that have not.
    pub(super) fn ready(&mut self) -> Vec<Ask> {
        if self.is_over() {
            return Vec::new();
        }
        let mut asks = Vec::new();
        for call in &self.plan.calls {
            if self.has_begun[call.id.0] {
                continue;
            }
            if call.inputs.iter().all(|input| self.outputs[input.0].is_some()) {
                self.has_begun[call.id.0] = true;
                asks.push(Ask::Call(call.id));
            } else if self.is_new {
                let known =
                    call.prepared().filter(|member| member.parts.iter().all(|part| part.call().is_none()));
                asks.extend(known.map(|member| Ask::Ahead(member.parts.clone())));
            }
        }
        self.is_new = false;
        asks
    }

    /// Whether a call that reads this one's prompt and output waits for others too.
    pub(super) fn is_waited_with(&self, id: CallId) -> bool {
        let waits = |call: &Call| {
            call.inputs.contains(&id) && call.inputs.iter().any(|input| self.outputs[input.0].is_none())
        };
        self.plan.call(id).is_span && self.plan.calls.iter().any(waits)
    }

    /// Whether a call's output is part of the result.
    pub(super) fn is_result(&self, id: CallId) -> bool {
        self.plan.output.iter().any(|part| part.call() == Some(id))
    }
}
