//! Faults to replay a trace with: a list in a JSON file, or drawn from a seed.
//!
//! Times are seconds from the trace's start and rows are numbered as in the trace. All policies of a
//! comparison meet the same faults. It must not know how the world lets them happen.

use base::{RelQueryId, Time, WorkItem};
use serde::{Deserialize, Serialize};

use crate::draws::Draws;
use crate::step_faults::StepFaults;
use crate::trace::{Lowered, Trace, TraceError};

/// Something that goes wrong, or that people change their minds about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Steps that start in the span take `factor` times as long.
    Slow {
        /// Start of the span.
        from: f64,
        /// End of it.
        until: f64,
        /// From 0.001 to 1000.
        factor: f64,
    },
    /// The first step that starts at this time or later fails whole.
    FailedStep { at: f64 },
    /// The row's first token is not a number.
    NotANumber {
        /// The relQuery.
        rel_id: u64,
        row: u32,
    },
    /// The replica is gone for the span: the step that meets it fails, and all keys and values are lost.
    LostReplica {
        /// When it goes.
        from: f64,
        /// When it is back.
        until: f64,
    },
    /// A relQuery is called off.
    Cancel {
        at: f64,
        /// The relQuery.
        rel_id: u64,
    },
    /// A row is called off.
    CancelRow {
        at: f64,
        /// The relQuery.
        rel_id: u64,
        row: u32,
    },
    /// A relQuery gets more rows; none if it has ended by then.
    LateRows {
        at: f64,
        /// The relQuery.
        rel_id: u64,
        /// As in the trace: group or -1, unique tokens, output tokens. Numbered after the trace's.
        rows: Vec<[i64; 3]>,
    },
}

/// Faults, in any order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    pub faults: Vec<Fault>,
}

/// A plan that cannot be used with its trace.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// Not the JSON expected.
    #[error("not a list of faults: {0}")]
    Json(#[from] serde_json::Error),
    /// A fault that cannot be.
    #[error("faults[{index}].{field} {reason}")]
    Invalid {
        /// Its place in the list.
        index: usize,
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// The stream of numbers that faults are drawn from.
const PURPOSE: u64 = 7;

/// Something that people do at a time.
#[derive(Clone, Debug)]
pub enum UserAction {
    /// A relQuery is called off.
    Cancel(RelQueryId),
    /// A row is called off.
    CancelRow(RelQueryId, u32),
    /// Rows are added.
    Extend(RelQueryId, Vec<WorkItem>),
}

impl FaultPlan {
    /// Reads one.
    pub fn parse(json: &str) -> Result<Self, FaultError> {
        Ok(serde_json::from_str(json)?)
    }

    /// `count` faults of all kinds at seeded times and places of a trace.
    pub fn random(seed: u64, trace: &Trace, count: usize) -> Self {
        let mut draws = Draws::new(seed, PURPOSE);
        let last = trace.relqueries.last().map_or(0.0, |relquery| relquery.arrival);
        let places = trace.relqueries.iter().filter(|relquery| !relquery.rows.is_empty()).collect::<Vec<_>>();
        let (Some(highest), true) = (places.len().checked_sub(1), last.is_finite()) else {
            return Self::default();
        };
        let micros = |at: f64| (at * 1e6).round() / 1e6;
        let draw = |_| {
            let at = micros(draws.unit() * last.max(1.0));
            let until = micros(at + 1e-3 + draws.unit() * last.max(1.0) / 20.0);
            let relquery = places[draws.between(0, highest as u64) as usize];
            let rel_id = relquery.rel_id;
            let row = draws.between(0, relquery.rows.len() as u64 - 1) as u32;
            // People change their minds about what has arrived.
            let later = micros(relquery.arrival + draws.unit() * 5.0);
            match draws.between(0, 6) {
                0 => Fault::Slow { from: at, until, factor: draws.between(2, 10) as f64 },
                1 => Fault::FailedStep { at },
                2 => Fault::NotANumber { rel_id, row },
                3 => Fault::LostReplica { from: at, until },
                4 => Fault::Cancel { at: later, rel_id },
                5 => Fault::CancelRow { at: later, rel_id, row },
                _ => {
                    let like = relquery.rows[row as usize];
                    let rows = vec![like; draws.between(1, 5) as usize];
                    Fault::LateRows { at: later, rel_id, rows }
                }
            }
        };
        Self { faults: (0..count).map(draw).collect() }
    }

    /// Says what is wrong with it for this trace, if anything.
    pub fn check(&self, trace: &Trace) -> Result<(), FaultError> {
        for (index, fault) in self.faults.iter().enumerate() {
            let invalid = |(field, reason)| FaultError::Invalid { index, field, reason };
            fault.check(trace).map_err(invalid)?;
        }
        Ok(())
    }

    /// The trace with its late rows taken out again: what is submitted, and what people do when.
    pub fn lower(&self, trace: &Trace) -> Result<(Lowered, Vec<(Time, UserAction)>), TraceError> {
        let mut whole = trace.clone();
        let mut late = Vec::new();
        let mut actions = Vec::new();
        for fault in &self.faults {
            match fault {
                Fault::Cancel { at, rel_id } => {
                    actions.push((time(*at), UserAction::Cancel(RelQueryId(*rel_id))))
                }
                Fault::CancelRow { at, rel_id, row } => {
                    actions.push((time(*at), UserAction::CancelRow(RelQueryId(*rel_id), *row)));
                }
                Fault::LateRows { at, rel_id, rows } => {
                    let Some(place) = whole.relqueries.iter().position(|one| one.rel_id == *rel_id) else {
                        continue;
                    };
                    late.push((time(*at), place, whole.relqueries[place].rows.len()));
                    whole.relqueries[place].rows.extend(rows);
                }
                _ => {}
            }
        }
        let mut lowered = whole.lower()?;
        // The last that were added are the last of their relQuery.
        for (at, place, first) in late.into_iter().rev() {
            let submission = &mut lowered.submissions[place];
            let items = submission.items.split_off(first);
            actions.push((at, UserAction::Extend(submission.id, items)));
        }
        Ok((lowered, actions))
    }

    /// What goes wrong with steps.
    pub fn step_faults(&self) -> StepFaults {
        let mut faults = StepFaults::default();
        for fault in &self.faults {
            match fault {
                Fault::Slow { from, until, factor } => {
                    faults.slow(time(*from), time(*until), (factor * 1_000.0).round() as u64);
                }
                Fault::FailedStep { at } => faults.fail_at(time(*at)),
                Fault::NotANumber { rel_id, row } => faults.break_row(RelQueryId(*rel_id), *row),
                Fault::LostReplica { from, until } => faults.lose(time(*from), time(*until)),
                Fault::Cancel { .. } | Fault::CancelRow { .. } | Fault::LateRows { .. } => {}
            }
        }
        faults
    }
}

fn time(seconds: f64) -> Time {
    Time((seconds * 1e9).round() as u64)
}

impl Fault {
    fn check(&self, trace: &Trace) -> Result<(), (&'static str, &'static str)> {
        let is_time = |at: f64| (0.0..=1e9).contains(&at);
        let at_time = |field, at| match is_time(at) {
            true => Ok(()),
            false => Err((field, "must be from 0 to 1e9 seconds")),
        };
        let span = |from: f64, until: f64| {
            at_time("from", from)?;
            at_time("until", until)?;
            if from < until { Ok(()) } else { Err(("until", "must be after `from`")) }
        };
        let rows = |rel_id: u64| {
            let found = trace.relqueries.iter().find(|relquery| relquery.rel_id == rel_id);
            found.map(|relquery| relquery.rows.len()).ok_or(("rel_id", "is no relQuery of the trace"))
        };
        let has_row = |rel_id: u64, row: u32| match (row as usize) < rows(rel_id)? {
            true => Ok(()),
            false => Err(("row", "is no row of the relQuery")),
        };
        match self {
            Self::Slow { from, until, factor } => {
                span(*from, *until)?;
                if (0.001..=1_000.0).contains(factor) {
                    Ok(())
                } else {
                    Err(("factor", "must be from 0.001 to 1000"))
                }
            }
            Self::FailedStep { at } => at_time("at", *at),
            Self::NotANumber { rel_id, row } => has_row(*rel_id, *row),
            Self::LostReplica { from, until } => span(*from, *until),
            Self::Cancel { at, rel_id } => at_time("at", *at).and(rows(*rel_id).map(|_| ())),
            Self::CancelRow { at, rel_id, row } => at_time("at", *at).and(has_row(*rel_id, *row)),
            Self::LateRows { at, rel_id, rows: late } => {
                at_time("at", *at).and(rows(*rel_id).map(|_| ()))?;
                if late.is_empty() { Err(("rows", "must not be empty")) } else { Ok(()) }
            }
        }
    }
}
