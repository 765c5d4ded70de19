//! A decision in words: what the candidates were, what each priority was made of, what Delta was made of.
//!
//! Planning only notes integers, of at most [`LISTED_MAX`](crate::truncated::LISTED_MAX) relQueries; all text
//! is made here, when somebody asks.

use std::fmt;

use base::{Nanos, StepId, Time};
use serde::Serialize;

use crate::breakdown::PriorityParts;
use crate::decision::{Decision, HeadStartTrade, Loss, Touched};
use crate::paper_variant::DeltaReading;
use crate::truncated::Truncated;

/// Why a step is what it is, to be read or sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The step; absent before the first.
    pub step: Option<StepId>,
    /// When it was planned.
    pub now: Time,
    /// Why it prefills, decodes or does both.
    pub reason: String,
    /// What could be prefilled.
    pub prefill: BatchSize,
    /// What could decode.
    pub decode: BatchSize,
    /// The first waiting relQuery, those of the candidates, those that run: their priorities.
    pub relqueries: Truncated<Touched>,
    /// The trade-off, in the transitional case.
    pub delta: Option<DeltaParts>,
    /// What first rows cost, in a step in which they go first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_start: Option<HeadStartTrade>,
    /// Rows that gave up their blocks.
    pub preempted: usize,
}

/// How large a candidate is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchSize {
    pub relqueries: u32,
    pub rows: u32,
    /// Uncached prompt tokens of it.
    pub uncached: u64,
}

/// What Delta is made of (RelServe, Eq. 15-17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeltaParts {
    /// Eq. 17, by its reading.
    pub total: i64,
    /// Eq. 15.
    pub running: Nanos,
    /// Eq. 16.
    pub waiting: Nanos,
    /// Whether Eq. 16 is taken off or added.
    pub reading: DeltaReading,
    /// The terms of Eq. 15.
    pub losses: Truncated<Loss>,
    /// `|R-|` of Eq. 16.
    pub waiting_relqueries: u64,
    /// Decode steps that Eq. 16 counts.
    pub steps: u64,
}

impl Decision {
    /// The decision, to be read or sent.
    pub fn explain(&self) -> Explanation {
        let prefill = BatchSize {
            relqueries: self.candidate_relqueries,
            rows: self.candidate_rows,
            uncached: self.candidate_tokens.map_or(0, |tokens| tokens.0),
        };
        let decode = BatchSize { relqueries: self.running_relqueries, rows: self.running_rows, uncached: 0 };
        let delta = self.delta.zip(self.trade.as_ref()).map(|(delta, trade)| DeltaParts {
            total: i64::try_from(delta.total()).unwrap_or(if delta.total() < 0 {
                i64::MIN
            } else {
                i64::MAX
            }),
            running: Nanos(delta.running),
            waiting: Nanos(delta.waiting),
            reading: delta.reading,
            losses: trade.losses.clone(),
            waiting_relqueries: trade.waiting,
            steps: trade.steps,
        });
        Explanation {
            step: self.step,
            now: self.now,
            reason: self.reason.to_string(),
            prefill,
            decode,
            relqueries: self.touched.clone(),
            delta,
            head_start: self.head_start,
            preempted: self.preempted.len(),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => {
                writeln!(f, "step {step}: {}, at {:.6} s", self.reason, seconds(Nanos(self.now.0)))?
            }
            None => writeln!(f, "{}", self.reason)?,
        }
        let BatchSize { relqueries, rows, uncached } = self.prefill;
        writeln!(f, "  could prefill {rows} rows of {relqueries} relQueries, {uncached} uncached tokens")?;
        let BatchSize { relqueries, rows, .. } = self.decode;
        writeln!(f, "  could decode {rows} rows of {relqueries} relQueries")?;
        for touched in &self.relqueries.listed {
            writeln!(f, "  {touched}")?;
        }
        left_out(f, "  ", self.relqueries.left_out)?;
        if let Some(delta) = &self.delta {
            writeln!(f, "  {delta}")?;
        }
        if let Some(head_start) = &self.head_start {
            writeln!(f, "  {head_start}")?;
        }
        if self.preempted > 0 {
            writeln!(f, "  {} rows gave up their memory", self.preempted)?;
        }
        Ok(())
    }
}

impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match (self.waits, self.runs) {
            (true, true) => "waits and runs",
            (_, true) => "runs",
            _ => "waits",
        };
        let source = if self.is_new { "computed" } else { "reused" };
        let priority = seconds(self.priority);
        write!(
            f,
            "relQuery {} {place}: priority {priority:.6} s, {source}: {}",
            self.id, self.breakdown.parts
        )?;
        let age = if self.breakdown.is_aged { "aged by" } else { "here for" };
        write!(f, "; {age} {:.6} s", seconds(self.age))?;
        if self.breakdown.is_late { write!(f, "; late") } else { Ok(()) }
    }
}

impl fmt::Display for PriorityParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrival => write!(f, "by arrival"),
            Self::First => write!(f, "goes first"),
            Self::Static { prompt, output } => write!(f, "{prompt} prompt and {output} output tokens"),
            Self::Estimate(parts) => write!(
                f,
                "prompts {:.6} + prefills {:.6} + decode steps {:.6} + sequences {:.6}, miss ratio {}/{}",
                seconds(parts.prefill_tokens),
                seconds(parts.prefill_bases),
                seconds(parts.decode_bases),
                seconds(parts.decode_sequences),
                parts.missed,
                parts.sampled
            ),
            Self::Work(parts) => write!(
                f,
                "prompts {:.6} + outputs {:.6} + share of the steps {:.6}",
                seconds(parts.prompt),
                seconds(parts.output),
                seconds(parts.share)
            ),
        }
    }
}

impl fmt::Display for DeltaParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.reading == DeltaReading::Figure8 { '-' } else { '+' };
        let (total, steps) = (self.total as f64 / 1e9, self.steps);
        let (running, waiting) = (seconds(self.running), seconds(self.waiting));
        writeln!(f, "delta {total:.6} s = {running:.6} lost {sign} {waiting:.6} gained")?;
        for loss in &self.losses.listed {
            let (prefill, sequences) = (seconds(loss.prefill), seconds(loss.sequences));
            writeln!(f, "    relQuery {} loses {prefill:.6} + {sequences:.6}", loss.id)?;
        }
        left_out(f, "    ", self.losses.left_out)?;
        write!(f, "    {} waiting relQueries gain {steps} decode steps each", self.waiting_relqueries)
    }
}

fn left_out(f: &mut fmt::Formatter<'_>, indent: &str, left_out: u32) -> fmt::Result {
    if left_out > 0 { writeln!(f, "{indent}and {left_out} more relQueries") } else { Ok(()) }
}

fn seconds(span: Nanos) -> f64 {
    span.as_seconds()
}
