//! The local executor: a batch plan through the decoder to sampled tokens and their text.
//!
//! It keeps the text of rows that are not yet retired and where they stand in their constraint, nothing else of a
//! request. It trusts nothing in a plan: what contradicts pool, vocabulary or context is refused before anything
//! is written.

mod check;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use base::{
    BatchPlan, Bytes, ConstraintError, End, ExecError, Executor, Nanos, RequestId, RowError, RowOutcome,
    SampleSpec, Sampled, StepOutcome, TokenId,
};
use rayon::prelude::*;

use crate::constraint::{Constraints, Follow, Pushed};
use crate::parallel::{Broken, Memory, Ranks};
use crate::pool::{PoolError, PoolShape};
use crate::sample::{forbid, sample};
use crate::stop::StopText;
use crate::text::{DecodeState, TokenText};

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

/// A sampled token, and what its constraint says to it.
type Drawn = Result<(TokenId, Pushed), RowError>;

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
            memory: ranks.memory(pool_shape),
            pool_shape,
            ranks,
            constraints: Arc::new(Constraints::new(Arc::clone(&text), ends.clone())),
            text,
            ends,
            outputs: HashMap::new(),
        })
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

    /// Samples from hidden states `[rows, embedding]`, in order.
    fn sample(
        &mut self,
        hidden: &[f32],
        specs: &[(RequestId, &SampleSpec)],
    ) -> Result<Vec<RowOutcome>, Broken> {
        let config = self.ranks.config();
        let (width, vocab, ids_end) = (config.embedding, config.vocab, self.text.ids_end() as usize);
        let mut rows = Vec::with_capacity(specs.len());
        for (hidden, specs) in hidden.chunks(LOGIT_ROWS_MAX * width).zip(specs.chunks(LOGIT_ROWS_MAX)) {
            let mut logits = self.ranks.logits(&mut self.memory, hidden)?;
            let mut follows: Vec<_> =
                specs.iter().map(|(request, spec)| self.follow(*request, spec)).collect();
            let cpu = self.ranks.cpu();
            let drawn: Vec<Drawn> = cpu.run(|| {
                let rows = logits.par_chunks_exact_mut(vocab).zip(specs.par_iter()).zip(&mut follows);
                let draw = |((logits, (_, spec)), follow): ((&mut [f32], &(_, &SampleSpec)), &mut _)| {
                    draw(logits, spec, follow, |logits, spec| {
                        sample(cpu, logits, ids_end, &spec.generation, (spec.seed, spec.output_index))
                    })
                };
                rows.map(draw).collect()
            });
            for (((request, spec), drawn), follow) in specs.iter().zip(drawn).zip(follows) {
                let result = drawn.map(|(token, pushed)| {
                    let follow = follow.ok().flatten();
                    self.emit(*request, spec, (token, pushed), follow)
                });
                rows.push(RowOutcome { request: *request, result });
            }
        }
        Ok(rows)
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

    /// The text of a token and of those it forces, and whether the row ends with them.
    fn emit(
        &mut self,
        request: RequestId,
        spec: &SampleSpec,
        (token, pushed): (TokenId, Pushed),
        follow: Option<Follow>,
    ) -> Sampled {
        let generation = &spec.generation;
        let is_free = follow.is_none();
        let output = self.outputs.entry(request).or_insert_with(|| Output {
            decode: self.text.start(),
            stop: StopText::default(),
            follow: None,
        });
        output.follow = follow;
        let (forced, rest) = match pushed {
            Pushed::Open(forced) => (forced, None),
            Pushed::Ended(rest) => (Vec::new(), Some(rest)),
        };
        let left = generation.output_max.0.saturating_sub(u64::from(spec.output_index)).max(1);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let obeys_end = !generation.ignore_end || !is_free;
        let (mut tokens, mut text, mut end) = (Vec::new(), String::new(), None);
        for token in std::iter::once(token).chain(forced).take(left) {
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
            if let Some(rest) = rest {
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

/// Draws a token among those that the row's constraint allows, and tells the constraint.
fn draw(
    logits: &mut [f32],
    spec: &SampleSpec,
    follow: &mut Result<Option<Follow>, ConstraintError>,
    sample: impl FnOnce(&mut [f32], &SampleSpec) -> Result<TokenId, RowError>,
) -> Drawn {
    let failed = |error: ConstraintError| RowError::Failed(format!("its constraint cannot be kept: {error}"));
    let Some(follow) = follow.as_mut().map_err(|error| failed(error.clone()))? else {
        return Ok((sample(logits, spec)?, Pushed::Open(Vec::new())));
    };
    let allowed = follow.allowed().map_err(failed)?;
    forbid(logits, |token| (token.0 as usize) < allowed.len() && allowed.is_allowed(token.0));
    let token = sample(logits, spec)?;
    Ok((token, follow.push(token).map_err(failed)?))
}

impl Executor for LocalExecutor {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        let start = Instant::now();
        for request in &plan.retired {
            self.outputs.remove(request);
        }
        check::check(plan, self.ranks.config(), self.pool_shape).map_err(ExecError::BadPlan)?;
        let failed = |broken: Broken| ExecError::Failed(broken.to_string());
        let hidden = self.ranks.forward(&mut self.memory, &plan.slots).map_err(failed)?;
        let specs: Vec<(RequestId, &SampleSpec)> =
            plan.slots.iter().filter_map(|slot| Some((slot.request, slot.sample.as_ref()?))).collect();
        let rows = self.sample(&hidden, &specs).map_err(failed)?;
        let elapsed = Nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Ok(StepOutcome { step: plan.step, elapsed, rows })
    }
}
