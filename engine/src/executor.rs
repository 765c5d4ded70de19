//! The local executor: a batch plan through the decoder to sampled tokens and their text.
//!
//! It keeps the text of rows that are not yet retired and where they stand in their constraint, nothing else of a
//! request. It trusts nothing in a plan: what contradicts pool, vocabulary or context is refused before anything
//! is written.

mod check;
mod device;
mod draw;
mod resume;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use base::{
    BatchPlan, Bytes, ConstraintError, End, ExecError, Executor, Nanos, RequestId, RowError, RowOutcome,
    SampleSpec, Sampled, Slot, StepOutcome, TokenId,
};
use rayon::prelude::*;

use crate::constraint::{Constraints, Follow};
use crate::device::cuda::GpuError;
use crate::parallel::{Hidden, Memory, Ranks, StepError};
use crate::pool::{PoolError, PoolShape};
use crate::sample::{highest_wanted, sample, sample_highest};
use crate::stop::StopText;
use crate::text::{DecodeState, TokenText};
use draw::{Asked, Drawn, draw, draw_rows, pushed};

/// Rows whose logits are in memory together: bounds them at a vocabulary's width each.
const LOGIT_ROWS_MAX: usize = 64;

/// Size of the KV pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Positions of a block.
    pub block_tokens: u32,
    /// Memory for keys and values.
    pub kv_bytes: Bytes,
}

/// Runs batch plans on this machine.
pub struct LocalExecutor {
    ranks: Ranks,
    memory: Vec<Memory>,
    pool_shape: PoolShape,
    /// Blocks of the host tier behind each pool.
    tier_blocks: usize,
    text: Arc<dyn TokenText>,
    ends: Vec<TokenId>,
    constraints: Arc<Constraints>,
    outputs: HashMap<RequestId, Output>,
}

/// One row so far: its text, and where it stands in its constraint.
struct Output {
    decode: DecodeState,
    stop: StopText,
    follow: Option<Follow>,
}

impl LocalExecutor {
    /// An executor of a model; `ends` are the model's own end tokens. Allocates the pool.
    pub fn new(
        model: impl Into<Ranks>,
        text: Arc<dyn TokenText>,
        ends: Vec<TokenId>,
        settings: PoolSettings,
    ) -> Result<Self, PoolError> {
        let ranks = model.into();
        let pool_shape = ranks.pool_shape(settings.block_tokens, settings.kv_bytes)?;
        Ok(Self {
            memory: ranks.memory(pool_shape)?,
            pool_shape,
            tier_blocks: 0,
            ranks,
            constraints: Arc::new(Constraints::new(Arc::clone(&text), ends.clone())),
            text,
            ends,
            outputs: HashMap::new(),
        })
    }

    /// The same with a host tier of `bytes` behind the pools of all ranks.
    pub fn with_tier(mut self, bytes: Bytes) -> Result<Self, PoolError> {
        self.tier_blocks = self.ranks.add_tier(&mut self.memory, self.pool_shape, bytes)?;
        Ok(self)
    }

    /// Blocks of its host tier.
    pub fn tier_blocks(&self) -> usize {
        self.tier_blocks
    }

    /// Extents of its pool, or of each rank's.
    pub fn pool_shape(&self) -> PoolShape {
        self.pool_shape
    }

    /// The model on its ranks.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// What compiles the constraints of its rows.
    pub fn constraints(&self) -> Arc<Constraints> {
        Arc::clone(&self.constraints)
    }

    /// Rows whose text it keeps.
    pub fn rows_kept(&self) -> usize {
        self.outputs.len()
    }

    /// Samples computed slots where they ask for it; `forces`: with what constraints force behind.
    fn sample_slots(
        &mut self,
        hidden: &Hidden,
        slots: &[Slot],
        forces: bool,
    ) -> Result<Vec<RowOutcome>, StepError> {
        let asked = slots.iter().filter_map(|slot| {
            let guesses = &slot.input[slot.input.len() - slot.guesses as usize..];
            Some(Asked { request: slot.request, spec: slot.sample.as_ref()?, guesses, forces })
        });
        let asked: Vec<Asked<'_>> = asked.collect();
        self.sample(hidden, &asked)
    }

    /// Samples from hidden states of all their rows, in order.
    fn sample(&mut self, hidden: &Hidden, asked: &[Asked<'_>]) -> Result<Vec<RowOutcome>, StepError> {
        let mut outcomes = Vec::with_capacity(asked.len());
        if asked.is_empty() {
            // What comes back says how long the step took, and that it was computed.
            self.ranks.wait(&mut self.memory)?;
            return Ok(outcomes);
        }
        if self.ranks.surveys() {
            self.sample_on_device(asked, &mut outcomes)?;
            return Ok(outcomes);
        }
        if let Some(wanted) = wanted(asked) {
            self.sample_highest(hidden, asked, &wanted, &mut outcomes)?;
            return Ok(outcomes);
        }
        let (mut done, mut asked) = (0, asked);
        while !asked.is_empty() {
            let (slots, rows) = together(asked, LOGIT_ROWS_MAX);
            let (now, later) = asked.split_at(slots);
            self.sample_together((hidden, done..done + rows), now, &mut outcomes)?;
            (done, asked) = (done + rows, later);
        }
        Ok(outcomes)
    }

    /// Samples slots without a constraint from their highest logits, `wanted` of each row.
    fn sample_highest(
        &mut self,
        hidden: &Hidden,
        asked: &[Asked<'_>],
        wanted: &[usize],
        outcomes: &mut Vec<RowOutcome>,
    ) -> Result<(), StepError> {
        let ids_end = self.text.ids_end() as usize;
        let found = self.ranks.highest(&mut self.memory, hidden, (wanted, ids_end))?;
        let mut rest = &found[..];
        for asked in asked {
            let mut follow = self.follow(asked.request, asked.spec);
            let (own, behind) = rest.split_at(asked.rows());
            rest = behind;
            let SampleSpec { generation, seed, .. } = asked.spec;
            let drawn = draw_rows(asked, |row, index| {
                let token = sample_highest(self.ranks.cpu(), &own[row], generation, (*seed, index))?;
                pushed(&mut follow, token, asked.forces)
            });
            outcomes.push(self.outcome(asked, drawn, follow));
        }
        Ok(())
    }

    /// Samples slots whose logits are in memory together.
    fn sample_together(
        &mut self,
        (hidden, rows): (&Hidden, Range<usize>),
        asked: &[Asked<'_>],
        outcomes: &mut Vec<RowOutcome>,
    ) -> Result<(), StepError> {
        let (vocab, ids_end) = (self.ranks.config().vocab, self.text.ids_end() as usize);
        let mut logits = self.ranks.logits(&mut self.memory, hidden, rows)?;
        let mut follows: Vec<_> = asked.iter().map(|asked| self.follow(asked.request, asked.spec)).collect();
        let mut rest = &mut logits[..];
        let mut jobs = Vec::with_capacity(asked.len());
        for (asked, follow) in asked.iter().zip(&mut follows) {
            let (own, behind) = std::mem::take(&mut rest).split_at_mut(asked.rows() * vocab);
            jobs.push((own, asked, follow));
            rest = behind;
        }
        let cpu = self.ranks.cpu();
        let one = |(logits, asked, follow): (&mut [f32], &Asked<'_>, &mut _)| {
            let spec = asked.spec;
            draw(logits, asked, follow, |logits, index| {
                sample(cpu, logits, ids_end, &spec.generation, (spec.seed, index))
            })
        };
        let drawn: Vec<Result<Drawn, RowError>> = cpu.run(|| jobs.into_par_iter().map(one).collect());
        self.ranks.keep_logits(&mut self.memory, logits);
        for ((asked, drawn), follow) in asked.iter().zip(drawn).zip(follows) {
            outcomes.push(self.outcome(asked, drawn, follow));
        }
        Ok(())
    }

    /// What became of a slot: its constraint is kept wherever it stands.
    fn outcome(
        &mut self,
        asked: &Asked<'_>,
        drawn: Result<Drawn, RowError>,
        follow: Result<Option<Follow>, ConstraintError>,
    ) -> RowOutcome {
        let follow = follow.ok().flatten();
        let result = match drawn {
            Ok(drawn) => Ok(self.emit(asked, drawn, follow)),
            Err(error) => {
                // It may be drawn again without guesses.
                self.outputs.entry(asked.request).and_modify(|output| output.follow = follow);
                Err(error)
            }
        };
        RowOutcome { request: asked.request, result }
    }

    /// Where a row stands in its constraint, if it has one; given back by `emit`.
    fn follow(&mut self, request: RequestId, spec: &SampleSpec) -> Result<Option<Follow>, ConstraintError> {
        match self.outputs.get_mut(&request) {
            Some(_) if spec.generation.constraint.is_none() => Ok(None),
            Some(output) => match output.follow.take() {
                Some(follow) => Ok(Some(follow)),
                None => Err(ConstraintError("where the row stands in it was lost".into())),
            },
            None => self.constraints.start(&spec.generation),
        }
    }

    /// The text of what was drawn, and whether the row ends with it: what stands behind an end is dropped.
    fn emit(&mut self, asked: &Asked<'_>, drawn: Drawn, follow: Option<Follow>) -> Sampled {
        let generation = &asked.spec.generation;
        let is_free = follow.is_none();
        let output = self.outputs.entry(asked.request).or_insert_with(|| Output {
            decode: self.text.start(),
            stop: StopText::default(),
            follow: None,
        });
        output.follow = follow;
        let left = asked.left();
        let obeys_end = !generation.ignore_end || !is_free;
        let (mut tokens, mut text, mut end) = (Vec::new(), String::new(), None);
        for token in drawn.tokens.into_iter().take(left) {
            tokens.push(token);
            if (obeys_end && self.ends.contains(&token)) || generation.stop_tokens.contains(&token) {
                end = Some(End::Stop);
                break;
            }
            let released = output.stop.push(&self.text.push(&mut output.decode, token), &generation.stop);
            text += &released.text;
            if released.is_stopped {
                return Sampled { tokens, text, end: Some(End::Stop) };
            }
        }
        if end.is_none() {
            if let Some(rest) = drawn.rest {
                output.decode.pending.extend(rest);
                end = Some(End::Stop);
            } else if tokens.len() == left {
                end = Some(End::Length);
            }
        }
        if end.is_some() {
            let released = output.stop.push(&self.text.flush(&mut output.decode), &generation.stop);
            text += &released.text;
            if released.is_stopped {
                end = Some(End::Stop);
            }
            text += &output.stop.flush();
        }
        Sampled { tokens, text, end }
    }
}

/// Slots whose row has failed by what may be a guess, without their guesses. A token of which a model makes no numbers
/// spoils what is computed beside it, the tokens before it too: a product with nothing of it is still not a number.
fn spoiled<'a>(slots: &'a [Slot], rows: &'a [RowOutcome]) -> impl Iterator<Item = Slot> + 'a {
    let failed = |slot: &&Slot| {
        let result = rows.iter().find(|row| row.request == slot.request).map(|row| &row.result);
        slot.guesses > 0 && matches!(result, Some(Err(RowError::NotANumber)))
    };
    slots.iter().filter(failed).map(|slot| {
        let known = slot.input.len() - slot.guesses as usize;
        Slot { input: slot.input[..known].to_vec(), guesses: 0, ..slot.clone() }
    })
}

/// How many of its highest logits each row is sampled from; `None` where any row needs all of them.
fn wanted(asked: &[Asked<'_>]) -> Option<Vec<usize>> {
    let mut rows = Vec::new();
    for asked in asked {
        let generation = &asked.spec.generation;
        let wanted = highest_wanted(generation).filter(|_| generation.constraint.is_none())?;
        rows.extend(std::iter::repeat_n(wanted, asked.rows()));
    }
    Some(rows)
}

/// How many of the first slots have their logits in memory together, at least one, and the rows of them, `most` where that
/// is more than one slot.
fn together(asked: &[Asked<'_>], most: usize) -> (usize, usize) {
    let (mut slots, mut rows) = (0, 0);
    for asked in asked {
        if slots > 0 && rows + asked.rows() > most {
            break;
        }
        (slots, rows) = (slots + 1, rows + asked.rows());
    }
    (slots, rows)
}

/// A step that cannot be computed. A GPU with too little memory for it has enough for a smaller one, and no row has gone
/// on yet; whatever else fails leaves nothing to rely on.
fn failed(error: StepError) -> ExecError {
    match error {
        StepError::Gpu(GpuError::OutOfMemory { .. }) => ExecError::Failed(error.to_string()),
        error => lost(error),
    }
}

/// A step that fails when some rows have gone on and others have not, or their blocks are anywhere.
fn lost(error: StepError) -> ExecError {
    ExecError::Lost(error.to_string())
}

impl Executor for LocalExecutor {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        let start = Instant::now();
        for request in &plan.retired {
            self.outputs.remove(request);
        }
        check::check(plan, self.ranks.config(), self.pool_shape).map_err(ExecError::BadPlan)?;
        check::check_moves(plan, self.pool_shape, self.tier_blocks).map_err(ExecError::BadPlan)?;
        self.resume(&plan.slots);
        self.ranks.move_blocks(&mut self.memory, &plan.moves).map_err(lost)?;
        let hidden = self.ranks.forward(&mut self.memory, &plan.slots).map_err(failed)?;
        let mut rows = self.sample_slots(&hidden, &plan.slots, true).map_err(lost)?;
        let spoiled: Vec<Slot> = spoiled(&plan.slots, &rows).collect();
        if !spoiled.is_empty() {
            // The scheduler takes what begins the guesses for computed, and here it is not: nothing may follow the
            // drawn token.
            let hidden = self.ranks.forward(&mut self.memory, &spoiled).map_err(lost)?;
            for again in self.sample_slots(&hidden, &spoiled, false).map_err(lost)? {
                rows.iter_mut()
                    .filter(|row| row.request == again.request)
                    .for_each(|row| *row = again.clone());
            }
        }
        let elapsed = Nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Ok(StepOutcome { step: plan.step, elapsed, rows })
    }
}
