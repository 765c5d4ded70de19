//! Fits the cost model to an executor by running it for a moment before the server starts.
//!
//! Made-up prompts as long as those of a table's rows, on blocks that nobody uses yet: prefills of growing
//! size, decode steps of growing width over them, and steps that do both beside the same work in two steps,
//! which show how much of its prompts a mixed step hides (`H`), beside few rows and beside many. The time is
//! bounded: a slow model is measured at fewer sizes and once each. The result is kept per model revision and
//! machine; the scheduler refits it while it serves, and the writer keeps that.

mod harness;
mod hidden;

use base::{ExecError, Executor, Nanos, TokenCount};
use harness::Harness;
use hidden::{HiddenSpread, HiddenWork, Pair};
use scheduler::{CostModel, FEW_SEQUENCES, Sample};
use store::{Store, UnixMillis};

use crate::model::Model;

/// Prompts of each measured prefill, smallest first; a slow model leaves the last ones out.
const PREFILL_PROMPTS: [u32; 4] = [1, 2, 4, 8];
/// Sequences of the measured decode steps, beside the most that there are.
const DECODE_SEQUENCES: [u32; 4] = [1, 4, 16, 32];
/// Prompt tokens of the measured mixed steps of few rows, and how many rows: as many as first rows have prompts ride
/// with them, and as many as they are. First come those of the race's relQuery, which a slow model has time for alone.
/// No more, for beside hundreds a thirtieth of the prompts' time is as long as what is looked for.
const FEW_TOKENS: [u32; 3] = [64, 32, 128];
const FEW_ROWS: u32 = 4;
/// Prompts of the prefill just before those steps that says how fast the machine is by now.
const PACE_PROMPTS: u32 = 2;
/// Prompt tokens of the other mixed steps, which have all the rows there are.
const MIXED_TOKENS: [u32; 5] = [64, 128, 256, 512, 1_024];
/// Tokens of a prompt, and so of a decode's context: those of the RelServe paper's rows have 150 to 250.
const PROMPT: u32 = 192;
/// Most sequences that hold a context.
const SEQUENCES_MAX: u32 = 64;
/// Repetitions, of which the median counts, where there is time.
const REPETITIONS: usize = 3;
/// The same of mixed steps of few rows, which are short.
const FEW_REPETITIONS: usize = 5;
/// Time for prefills, for those and decodes, for mixed steps of few rows too, and for all: the smallest sizes are
/// measured in any case.
const PREFILL_UNTIL: Nanos = Nanos(1_500_000_000);
const DECODE_UNTIL: Nanos = Nanos(2_500_000_000);
const FEW_UNTIL: Nanos = Nanos(4_000_000_000);
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
    /// How far what mixed steps showed of `H` lies apart, beside few rows and beside all.
    hidden: [Option<HiddenSpread>; 2],
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
    let few = MixedSteps {
        rows: width_max.min(FEW_ROWS),
        tokens: &FEW_TOKENS,
        prompts: PromptTime::PartOfLonger,
        repetitions: FEW_REPETITIONS,
        until: FEW_UNTIL,
    };
    let few = few.measure(&mut harness, (room, aside), &lines, &mut samples)?;
    let all = MixedSteps {
        rows: width_max,
        tokens: &MIXED_TOKENS,
        prompts: PromptTime::Measured,
        repetitions: REPETITIONS,
        until: MIXED_UNTIL,
    };
    let all = all.measure(&mut harness, (room, aside), &lines, &mut samples)?;
    harness.finish()?;
    let mixed_hidden = all.median().unwrap_or(0);
    // Where all prompts vanished beside few rows, longer ones may have told more beside many, which hide no more.
    let mixed_hidden_few = match few.spread() {
        Some(_) => few.median(),
        None => few.median().map(|bound| bound.max(mixed_hidden)),
    };
    let hidden = [few.spread(), all.spread()];
    Ok(Calibration { cost: CostModel { mixed_hidden, mixed_hidden_few, ..lines }, samples, hidden })
}

/// Mixed steps that are measured.
struct MixedSteps<'a> {
    /// Rows that decode in them.
    rows: u32,
    /// Prompt tokens, those first that are measured in any case.
    tokens: &'a [u32],
    prompts: PromptTime,
    /// How often each, where there is time.
    repetitions: usize,
    until: Nanos,
}

/// What the prompts of a mixed step would take in a step of their own.
#[derive(Clone, Copy)]
enum PromptTime {
    /// What a prefill of them just before it takes.
    Measured,
    /// Their part of a longer prefill just before it, or of the line where a model is too slow for one. A processor computes
    /// a few tens of tokens in less: they wait for the weights to be read, which a line takes for a base. Prompts that ride
    /// with few rows are such, and spare a full step what they take in it.
    PartOfLonger,
}

impl MixedSteps<'_> {
    /// Measures them in rounds, so that a machine's change of pace is in all sizes alike. Prompts go to the `aside` places
    /// from `first` on, each step behind a decode of as many rows and what says the time of its prompts.
    fn measure(
        &self,
        harness: &mut Harness<'_>,
        (first, aside): (u32, u32),
        lines: &CostModel,
        samples: &mut Vec<Sample>,
    ) -> Result<HiddenWork, ExecError> {
        let fits = |tokens: &u32| tokens.div_ceil(harness.prompt()) <= aside;
        let mut sizes: Vec<(u32, Vec<Pair>)> =
            self.tokens.iter().copied().filter(fits).map(|tokens| (tokens, Vec::new())).collect();
        'rounds: for _ in 0..self.repetitions {
            let pace = self.pace(harness, (first, aside), lines)?;
            for (tokens, pairs) in &mut sizes {
                let prefill = match pace {
                    Some(pace) => pace.prefill(TokenCount(u64::from(*tokens))),
                    None => harness.prefill(first, *tokens)?,
                };
                pairs.push(Pair {
                    prefill,
                    decode: harness.decode(self.rows)?,
                    mixed: harness.mixed(self.rows, first, *tokens)?,
                });
                if harness.spent() >= self.until {
                    break 'rounds;
                }
            }
        }
        let mut hidden = HiddenWork::default();
        for (tokens, pairs) in sizes.iter().filter(|(_, pairs)| !pairs.is_empty()) {
            hidden.add(lines, pairs);
            let mut spans: Vec<Nanos> = pairs.iter().map(|pair| pair.mixed).collect();
            spans.sort_unstable();
            let (tokens, elapsed) = (TokenCount(u64::from(*tokens)), spans[spans.len() / 2]);
            samples.push(Sample::Mixed { tokens, sequences: u64::from(self.rows), elapsed });
        }
        Ok(hidden)
    }

    /// The line with the pace that the machine has now; `None` where prompts are measured one by one.
    fn pace(
        &self,
        harness: &mut Harness<'_>,
        (first, aside): (u32, u32),
        lines: &CostModel,
    ) -> Result<Option<CostModel>, ExecError> {
        if matches!(self.prompts, PromptTime::Measured) {
            return Ok(None);
        }
        let tokens = aside.min(PACE_PROMPTS) * harness.prompt();
        let expected = lines.prefill(TokenCount(u64::from(tokens)));
        if tokens == 0 || harness.spent() + expected >= self.until {
            return Ok(Some(*lines));
        }
        let long = harness.prefill(first, tokens)?.saturating_sub(lines.prefill_base);
        Ok(Some(CostModel { prefill_per_token: Nanos(long.0 / u64::from(tokens)), ..*lines }))
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
        let CostModel { prefill_per_token, prefill_base, decode_per_sequence, decode_base, .. } = self.cost;
        let [few, all] = self.hidden;
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
        text +=
            &format!("a mixed step hides H = {} of its prompts; ", hidden_text(self.cost.mixed_hidden, all));
        text += &match self.cost.hide_permille() {
            Some(hide) => format!("hide = H / (b_d - b_p) = {:.2}", hide as f64 / 1e3),
            None => "hide is undefined: a decode step has no more overhead than a prefill".into(),
        };
        text += &format!("; it saves {:.3} ms against two steps\n", self.cost.mixing_saves() as f64 / 1e6);
        if let Some(hidden) = self.cost.mixed_hidden_few {
            text += &format!(
                "beside {FEW_SEQUENCES} rows at most H = {}; it saves {:.3} ms\n",
                hidden_text(hidden, few),
                self.cost.mixing_few_saves() as f64 / 1e6
            );
        }
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

/// `H`, and how far apart the steps were that showed it.
fn hidden_text(hidden: i64, spread: Option<HiddenSpread>) -> String {
    let ms = |nanos: i64| nanos as f64 / 1e6;
    match spread {
        Some(HiddenSpread { pairs, least, most }) => format!(
            "{:.3} ms (the middle half of {pairs} pairs of steps: {:.3} to {:.3} ms)",
            ms(hidden),
            ms(least),
            ms(most)
        ),
        None => format!("{:.3} ms (no step showed more)", ms(hidden)),
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
        Ok(fitted) => fitted.and_then(|fitted| read_kept(&fitted)),
        Err(error) => {
            tracing::warn!(%error, "the kept calibration cannot be read");
            None
        }
    }
}

/// A kept cost model. One that did not tell few rows apart starts with what all rows hide, from where serving follows
/// them.
fn read_kept(fitted: &str) -> Option<CostModel> {
    let cost: CostModel = serde_json::from_str(fitted).ok()?;
    Some(CostModel { mixed_hidden_few: cost.mixed_hidden_few.or(Some(cost.mixed_hidden)), ..cost })
}

/// Keeps a cost model for the next start.
pub async fn keep(store: &Store, model: &Model, cost: CostModel, unix_ms: u64) {
    let fitted = serde_json::to_string(&cost).expect("a cost model is plain numbers");
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
