//! Fits the cost model to an executor by running it for a moment before the server starts.
//!
//! Made-up prompts as long as those of a table's rows, on blocks that nobody uses yet: prefills of growing
//! size, decode steps of growing width over them, and steps that do both beside the same work in two steps,
//! which show how much of its prompts a mixed step hides (`H`). The time is bounded: a slow model is measured
//! at fewer sizes and once each. The result is kept per model revision and machine; the scheduler refits it
//! while it serves, and the writer keeps that.

mod harness;

use base::{ExecError, Executor, Nanos, TokenCount};
use harness::Harness;
use scheduler::{CostModel, Sample};
use store::{Store, UnixMillis};

use crate::model::Model;

/// Prompts of each measured prefill, smallest first; a slow model leaves the last ones out.
const PREFILL_PROMPTS: [u32; 4] = [1, 2, 4, 8];
/// Sequences of the measured decode steps, beside the most that there are.
const DECODE_SEQUENCES: [u32; 4] = [1, 4, 16, 32];
/// Prompt tokens of the measured mixed steps.
const MIXED_TOKENS: [u32; 5] = [64, 128, 256, 512, 1_024];
/// Tokens of a prompt, and so of a decode's context: those of the RelServe paper's rows have 150 to 250.
const PROMPT: u32 = 192;
/// Most sequences that hold a context.
const SEQUENCES_MAX: u32 = 64;
/// Repetitions, of which the median counts, where there is time.
const REPETITIONS: usize = 3;
/// Time for prefills, for those and decodes, and for all: the smallest sizes are measured in any case.
const PREFILL_UNTIL: Nanos = Nanos(1_500_000_000);
const DECODE_UNTIL: Nanos = Nanos(2_500_000_000);
const MIXED_UNTIL: Nanos = Nanos(5_000_000_000);

/// Whether an executor runs at all: a short prompt, and a token after it. The model's KV pool must be unused.
pub fn probe(executor: &mut dyn Executor, model: &Model) -> Result<(), ExecError> {
    let mut harness = Harness::new(executor, model, model.block_tokens);
    harness.prefill(0, harness.prompt())?;
    harness.decode(1)?;
    harness.finish()
}

/// What a calibration found.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The model that the measurements give.
    pub cost: CostModel,
    /// The measurements, in their order.
    pub samples: Vec<Sample>,
}

/// Measures an executor. The model's KV pool must be unused.
pub fn measure(executor: &mut dyn Executor, model: &Model) -> Result<Calibration, ExecError> {
    let mut harness = Harness::new(executor, model, PROMPT);
    let mut samples = Vec::new();
    // Half of the pool holds contexts, the other half is for what is prefilled beside them.
    let room = (harness.places() / 2).clamp(1, SEQUENCES_MAX);
    let aside = harness.places() - room;
    // A short prompt too: without it a line through few points hardly shows its base.
    let short = (harness.prompt() / 12).max(1);
    let sizes = PREFILL_PROMPTS.into_iter().filter(|prompts| *prompts <= room);
    let prompt = harness.prompt();
    for tokens in std::iter::once(short).chain(sizes.map(|prompts| prompts * prompt)) {
        let elapsed = harness.median(PREFILL_UNTIL, |harness| harness.prefill(0, tokens))?;
        samples.push(Sample::Prefill { tokens: TokenCount(u64::from(tokens)), elapsed });
        if harness.spent() >= PREFILL_UNTIL {
            break;
        }
    }
    while harness.held() < room && harness.spent() < PREFILL_UNTIL {
        let more = (room - harness.held()).min(8);
        harness.prefill(harness.held(), more * harness.prompt())?;
    }
    let width_max = harness.width_max(room);
    let mut widths: Vec<u32> = DECODE_SEQUENCES.into_iter().filter(|width| *width < width_max).collect();
    widths.push(width_max);
    for width in widths {
        let elapsed = harness.median(DECODE_UNTIL, |harness| harness.decode(width))?;
        samples.push(Sample::Decode { sequences: u64::from(width), elapsed });
    }
    let lines = CostModel::fit(&samples);
    let mut hidden = HiddenWork::default();
    for tokens in MIXED_TOKENS.into_iter().filter(|tokens| tokens.div_ceil(prompt) <= aside) {
        let elapsed = harness.median(MIXED_UNTIL, |harness| {
            let apart = (harness.prefill(room, tokens)?, harness.decode(width_max)?);
            let elapsed = harness.mixed(width_max, room, tokens)?;
            hidden.add(&lines, apart, elapsed);
            Ok(elapsed)
        })?;
        let tokens = TokenCount(u64::from(tokens));
        samples.push(Sample::Mixed { tokens, sequences: u64::from(width_max), elapsed });
        if harness.spent() >= MIXED_UNTIL {
            break;
        }
    }
    harness.finish()?;
    Ok(Calibration { cost: CostModel { mixed_hidden: hidden.median(), ..lines }, samples })
}

/// What mixed steps showed of `H`, ns.
#[derive(Default)]
struct HiddenWork {
    shown: Vec<i128>,
    /// `H` is no smaller.
    least: Option<i128>,
}

impl HiddenWork {
    /// `H = b_d + a_d n + a_p u - t(u, n)` of a mixed step, its first three terms from a prefill and a
    /// decode run just before it: long prompts would drown `H` in the error of `a_p`, and a machine with
    /// other work on it changes its pace. A step no longer than its decode alone has hidden all its prompts
    /// and gives a bound.
    fn add(&mut self, lines: &CostModel, (prefill, decode): (Nanos, Nanos), mixed: Nanos) {
        let nanos = |span: Nanos| i128::from(span.0);
        let one = nanos(decode) + nanos(prefill) - nanos(lines.prefill_base) - nanos(mixed);
        if mixed > decode {
            self.shown.push(one);
        } else {
            self.least = self.least.max(Some(one));
        }
    }

    /// The median, and no less than the bound.
    fn median(mut self) -> i64 {
        self.shown.sort_unstable();
        let median = self.shown.get(self.shown.len() / 2).copied();
        // `None` is below every value: a bound counts only where there is one.
        let hidden = median.max(self.least).unwrap_or(0);
        i64::try_from(hidden).unwrap_or(i64::MAX)
    }
}

impl Calibration {
    /// The measurements beside what the model says of them, and the model, for people.
    pub fn text(&self) -> String {
        let ms = |nanos: u64| nanos as f64 / 1e6;
        let mut text = format!("{:<30}{:>12}{:>12}\n", "step", "measured ms", "model ms");
        for sample in &self.samples {
            let (name, elapsed, estimate) = match *sample {
                Sample::Prefill { tokens, elapsed } => {
                    (format!("prefill, {} tokens", tokens.0), elapsed, self.cost.prefill(tokens))
                }
                Sample::Decode { sequences, elapsed } => {
                    (format!("decode, {sequences} rows"), elapsed, self.cost.decode(sequences))
                }
                Sample::Mixed { tokens, sequences, elapsed } => (
                    format!("mixed, {} tokens, {sequences} rows", tokens.0),
                    elapsed,
                    self.cost.mixed(tokens, sequences),
                ),
            };
            text += &format!("{name:<30}{:>12.3}{:>12.3}\n", ms(elapsed.0), ms(estimate.0));
        }
        let CostModel { prefill_per_token, prefill_base, decode_per_sequence, decode_base, mixed_hidden } =
            self.cost;
        text += &format!(
            "prefill = {:.4} ms x tokens + {:.3} ms (R2 {:.4})\n",
            ms(prefill_per_token.0),
            ms(prefill_base.0),
            self.fit_of(|sample| matches!(sample, Sample::Prefill { .. }))
        );
        text += &format!(
            "decode  = {:.4} ms x rows + {:.3} ms (R2 {:.4})\n",
            ms(decode_per_sequence.0),
            ms(decode_base.0),
            self.fit_of(|sample| matches!(sample, Sample::Decode { .. }))
        );
        text += &format!("a mixed step hides H = {:.3} ms of its prompts; ", mixed_hidden as f64 / 1e6);
        text += &match self.cost.hide_permille() {
            Some(hide) => format!("hide = H / (b_d - b_p) = {:.2}", hide as f64 / 1e3),
            None => "hide is undefined: a decode step has no more overhead than a prefill".into(),
        };
        text += &format!("; it saves {:.3} ms against two steps\n", self.cost.mixing_saves() as f64 / 1e6);
        text
    }

    /// The coefficient of determination over the samples of one kind.
    fn fit_of(&self, is_kind: fn(&Sample) -> bool) -> f64 {
        let pairs: Vec<(f64, f64)> = self
            .samples
            .iter()
            .filter(|sample| is_kind(sample))
            .map(|sample| {
                let (seen, predicted) = match *sample {
                    Sample::Prefill { tokens, elapsed } => (elapsed, self.cost.prefill(tokens)),
                    Sample::Decode { sequences, elapsed } => (elapsed, self.cost.decode(sequences)),
                    Sample::Mixed { tokens, sequences, elapsed } => {
                        (elapsed, self.cost.mixed(tokens, sequences))
                    }
                };
                (seen.0 as f64, predicted.0 as f64)
            })
            .collect();
        let mean = pairs.iter().map(|(seen, _)| seen).sum::<f64>() / pairs.len().max(1) as f64;
        let left: f64 = pairs.iter().map(|(seen, predicted)| (seen - predicted).powi(2)).sum();
        let all: f64 = pairs.iter().map(|(seen, _)| (seen - mean).powi(2)).sum();
        if all > 0.0 { 1.0 - left / all } else { 1.0 }
    }
}

/// Stands for this machine's speed: system, architecture and number of threads. The processor's model is not
/// in it: another processor with as many threads starts from the same measurement, and serving refits it.
fn machine() -> String {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{}-{}-{threads}", std::env::consts::OS, std::env::consts::ARCH)
}

/// The cost model kept for this model and machine.
pub async fn kept(store: &Store, model: &Model) -> Option<CostModel> {
    match store.calibration(&revision(model), &machine()).await {
        Ok(fitted) => fitted.and_then(|fitted| serde_json::from_str(&fitted).ok()),
        Err(error) => {
            tracing::warn!(%error, "the kept calibration cannot be read");
            None
        }
    }
}

/// Keeps a cost model for the next start.
pub async fn keep(store: &Store, model: &Model, cost: CostModel, unix_ms: u64) {
    let fitted = serde_json::to_string(&cost).expect("a cost model is four numbers");
    let put = store.put_calibration(&revision(model), &machine(), &fitted, UnixMillis(unix_ms)).await;
    if let Err(error) = put {
        tracing::warn!(%error, "the calibration was not kept");
    }
}

fn revision(model: &Model) -> String {
    format!("{:032x}", model.revision)
}

#[cfg(test)]
mod tests;
