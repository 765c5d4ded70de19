//! How far policy `marginal-work` is from the best of RelServe's own, on every cost model that was fitted here:
//! the same traces for all, from light load to overload, one tenant, two, and bursts.
//!
//! The loads are shares of what the machine can do: of the time that one relQuery takes when all are there from the
//! start and the first come is the first served.

use base::{Nanos, ServiceClass, TokenCount};
use scheduler::{CostModel, Policy, SchedulerConfig};

use crate::machine::Machine;
use crate::paper::{Dataset, Offline, Workload, generate};
use crate::replay::{SimError, replay};
use crate::replay_config::ReplayConfig;
use crate::trace::Trace;

/// What it is compared with.
pub const PUBLISHED: [Policy; 3] = [Policy::RelServe, Policy::RelServePrefill, Policy::RelServeDecode];

/// A machine of the comparison.
#[derive(Clone, Debug)]
pub struct MachineCase {
    /// Its name in the table.
    pub name: String,
    /// How fast it is, and how much it holds.
    pub config: ReplayConfig,
}

/// Who asks for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The paper's workload.
    One,
    /// Ten relQueries at a time.
    Bursts,
    /// Beside it a tenant of class `bulk` with relQueries of 300 to 900 rows, six tenths of the work.
    Bulk,
    /// The same, and of no lower class.
    Peers,
}

impl Shape {
    /// All.
    pub const ALL: [Self; 4] = [Self::One, Self::Bursts, Self::Bulk, Self::Peers];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Bursts => "bursts",
            Self::Bulk => "bulk",
            Self::Peers => "peers",
        }
    }
}

/// Costs in microseconds: `a_p`, `b_p`, `a_d`, `b_d`, `H`; KV tokens; prompt tokens of a step.
struct Fit(&'static str, [i64; 5], u32, u64);

/// Engines on two CPU cores. Printed by `GET /v1/scheduler` (docs/API.md) and in docs/PERFORMANCE.md ("policies,
/// live", "one step") are the demo model, the 125M Llama in f32 (a_p and a_d as of loadgen/scenarios/paper-125m.toml)
/// and in bf16 (from its table of steps). Qwen2.5-0.5B at 512 tokens a step was measured, 2026-11-28: prompts of 16, 64,
/// 256, 512 and 1,024 tokens took 71, 189, 901, 1,747 and 3,284 ms, a decode step of 32 rows 153 ms; its H is assumed, as
/// what a decode step's base has beyond a prefill's but for 14 ms of reading the vocabulary's weights, which most of a
/// prompt's chunks do not need. The others are plausible ones, of faster and of larger machines.
const CPU: [Fit; 7] = [
    Fit("demo, 2 cores", [18, 585, 43, 272, -116], 131_072, 2_048),
    Fit("llama-125m f32, 2 cores", [900, 2_000, 1_600, 9_000, -2_000], 65_536, 2_048),
    Fit("llama-125m bf16, 2 cores", [730, 1_000, 850, 8_000, 0], 65_536, 2_048),
    Fit("demo, faster (assumed)", [6, 500, 60, 600, 0], 131_072, 2_048),
    Fit("llama-125m bf16, AMX (assumed)", [250, 5_000, 800, 12_000, 0], 65_536, 2_048),
    Fit("qwen-0.5b bf16, 2 cores (assumed)", [2_600, 2_000, 3_000, 33_000, 0], 32_768, 2_048),
    Fit("qwen-0.5b bf16, 512 a step (H assumed)", [3_400, 10_000, 2_900, 52_000, 28_000], 65_536, 512),
];

/// The machines: OPT-13B on an A100 with tight and ample memory and all shares hidden, and what was fitted to CPUs.
pub fn machines() -> Vec<MachineCase> {
    let mut machines = Vec::new();
    for (memory, kv_blocks) in [("tight", 10_000), ("ample", 200_000)] {
        for hide in [0, 250, 500, 750, 1_000] {
            let config = Machine::Opt13b.config(hide);
            let scheduler = SchedulerConfig { kv_blocks, ..config.scheduler };
            let name = format!("opt-13b, {memory} KV, hide {}", hide as f64 / 1_000.0);
            machines.push(MachineCase { name, config: ReplayConfig { scheduler, ..config } });
        }
    }
    machines.extend(CPU.iter().map(|Fit(name, costs, kv_tokens, step_tokens)| {
        let [a_p, b_p, a_d, b_d, hidden] = costs.map(|micros| micros * 1_000);
        let nanos = |value: i64| Nanos(value.unsigned_abs());
        let cost = CostModel {
            prefill_per_token: nanos(a_p),
            prefill_base: nanos(b_p),
            decode_per_sequence: nanos(a_d),
            decode_base: nanos(b_d),
            mixed_hidden: hidden,
            mixed_hidden_few: None,
        };
        let reference = ReplayConfig::default();
        let scheduler = SchedulerConfig {
            kv_blocks: kv_tokens / 16,
            block_tokens: 16,
            step_tokens_max: TokenCount(*step_tokens),
            publish_generated: true,
            ..reference.scheduler
        };
        MachineCase { name: (*name).to_owned(), config: ReplayConfig { scheduler, cost, ..reference } }
    }));
    machines
}

/// Seconds of the machine per relQuery of the paper's workload.
pub fn service_seconds(config: &ReplayConfig) -> Result<f64, SimError> {
    let mut trace = generate(&Workload::new(Dataset::Rotten, 1.0, 1_000));
    for relquery in &mut trace.relqueries {
        relquery.arrival = 0.0;
    }
    Ok(replay(&trace, Policy::Fcfs, config)?.summary.makespan / trace.relqueries.len() as f64)
}

/// A trace that keeps a machine which takes `service` seconds per relQuery busy for `load` hundredths of the time.
pub fn trace(shape: Shape, load: u32, service: f64, relqueries: usize, seed: u64) -> Trace {
    let rate = f64::from(load) / 100.0 / service;
    let paper = Workload { relqueries, ..Workload::new(Dataset::Rotten, rate, seed) };
    match shape {
        Shape::One => generate(&paper),
        Shape::Bursts => {
            let mut trace = generate(&paper);
            for burst in trace.relqueries.chunks_mut(10) {
                let first = burst.first().map_or(0.0, |relquery| relquery.arrival);
                burst.iter_mut().for_each(|relquery| relquery.arrival = first);
            }
            trace
        }
        Shape::Bulk | Shape::Peers => {
            // One of 600 rows on average is as much work as twelve of the others.
            let offline = Some(Offline { every: 12.0 / (0.6 * rate), ..Offline::default() });
            let mut trace = generate(&Workload { rate: 0.4 * rate, offline, ..paper });
            if shape == Shape::Peers {
                let class = Some(ServiceClass::Interactive);
                trace.relqueries.iter_mut().for_each(|relquery| relquery.class = class);
            }
            trace
        }
    }
}

/// What a policy came to: means over traces.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Mean, in seconds.
    pub mean: f64,
    /// 99th percentile, in seconds.
    pub p99: f64,
}

/// Replays the traces of some seeds under a policy.
pub fn latency(traces: &[Trace], policy: Policy, config: &ReplayConfig) -> Result<Latency, SimError> {
    let mut sum = Latency::default();
    for trace in traces {
        let summary = replay(trace, policy, config)?.summary;
        sum.mean += summary.mean / traces.len() as f64;
        sum.p99 += summary.p99 / traces.len() as f64;
    }
    Ok(sum)
}

/// One cell of the table.
#[derive(Clone, Debug)]
pub struct Regret {
    /// Of `marginal-work`.
    pub own: Latency,
    /// Of [`PUBLISHED`], in that order.
    pub published: Vec<Latency>,
}

impl Regret {
    /// Measures it.
    pub fn of(traces: &[Trace], config: &ReplayConfig) -> Result<Self, SimError> {
        let published = PUBLISHED.iter().map(|policy| latency(traces, *policy, config));
        Ok(Self {
            own: latency(traces, Policy::MarginalWork, config)?,
            published: published.collect::<Result<_, _>>()?,
        })
    }

    /// Mean latency over the least of the published ones: below 1 is better.
    pub fn mean(&self) -> f64 {
        self.own.mean / self.published.iter().map(|one| one.mean).fold(f64::INFINITY, f64::min)
    }

    /// The same of the 99th percentiles, against the policy with the least mean.
    pub fn p99(&self) -> f64 {
        let best = self.published.iter().min_by(|a, b| a.mean.total_cmp(&b.mean));
        best.map_or(f64::NAN, |best| self.own.p99 / best.p99)
    }
}
