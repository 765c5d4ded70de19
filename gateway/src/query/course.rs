//! One span query on its way: which of its calls run, have ended, or wait for what.

use std::sync::Arc;

use base::{End, Generation};
use ir::span::{Call, CallId, Plan};

use super::Planned;
use super::prompt::{Ask, Outputs};
use crate::board::Usage;
use crate::error::ApiError;

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

/// What came of a query: its calls by number, and the tokens of all its rows.
pub type Outcome = Result<(Vec<Ended>, Usage), ApiError>;

/// A query on its way.
pub(super) struct Course {
    pub(super) index: usize,
    pub(super) plan: Arc<Plan>,
    pub(super) generations: Arc<[Generation]>,
    has_begun: Vec<bool>,
    pub(super) ended: Vec<Option<Ended>>,
    pub(super) outputs: Outputs,
    /// Tokens of all its rows, spans computed ahead among them.
    pub(super) usage: Usage,
    error: Option<ApiError>,
    is_new: bool,
}

impl Course {
    pub(super) fn new(planned: &Planned) -> Self {
        let calls = planned.plan.calls.len();
        Self {
            index: planned.index,
            plan: Arc::clone(&planned.plan),
            generations: planned.generations.clone().into(),
            has_begun: vec![false; calls],
            ended: vec![None; calls],
            outputs: vec![None; calls],
            usage: Usage::default(),
            error: None,
            is_new: true,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.error.is_some() || self.ended.iter().all(Option::is_some)
    }

    pub(super) fn fail(&mut self, error: ApiError) {
        if !self.is_over() {
            self.error = Some(error);
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        match self.error {
            Some(error) => Err(error),
            None => Ok((self.ended.into_iter().flatten().collect(), self.usage)),
        }
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
