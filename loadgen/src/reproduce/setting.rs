//! What can be replayed: machines, datasets, loads, and the policies as the paper's figures name them.

use base::Millis;
pub use sim::{Dataset, Machine};
use sim::{Policy, ReplayConfig, Trace, Workload, generate};

/// A policy on an engine, as a line of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PolicySeries {
    /// Its name in figures and tables.
    pub name: &'static str,
    /// Its name in the JSON.
    pub key: &'static str,
    /// What orders the work.
    pub policy: Policy,
    /// How much of `b_d - b_p` a mixed step hides, in thousandths; no matter where steps never mix.
    pub hide_permille: u64,
    pub colour: &'static str,
}

const fn line(name: &'static str, key: &'static str, policy: Policy, colour: &'static str) -> PolicySeries {
    PolicySeries { name, key, policy, hide_permille: 0, colour }
}

/// First come, first served, prefill first.
pub const VLLM: PolicySeries = line("vLLM", "vllm", Policy::Fcfs, "#0072b2");
/// First come, first served, chunks beside decodes, on an engine that hides nothing of a chunk.
pub const SARATHI: PolicySeries = line("Sarathi", "sarathi", Policy::Sarathi, "#56b4e9");
/// The same where a chunk hides behind the decodes as the roofline says.
pub const SARATHI_HIDDEN: PolicySeries = PolicySeries {
    name: "Sarathi, hide 1",
    key: "sarathi-hide-1",
    hide_permille: 1_000,
    colour: "#7a8fa6",
    ..SARATHI
};
/// Static priority with a key that is linear in time.
pub const STATIC: PolicySeries = line("vLLM-SP (linear)", "vllm-sp", Policy::StaticPriority, "#d55e00");
/// Static priority with raw token counts as the key, evicting.
pub const STATIC_WEAK: PolicySeries =
    line("vLLM-SP (token sums, evicting)", "vllm-sp-weak", Policy::StaticPriorityWeak, "#e69f00");
/// The paper's policy.
pub const RELSERVE: PolicySeries = line("RelServe", "relserve", Policy::RelServe, "#009e73");
/// Its ablation: prefill first.
pub const PREFILL_FIRST: PolicySeries =
    line("RelServe (PP)", "relserve-pp", Policy::RelServePrefill, "#cc79a7");
/// Its ablation: decode first.
pub const DECODE_FIRST: PolicySeries =
    line("RelServe (DP)", "relserve-dp", Policy::RelServeDecode, "#e69f00");
/// The product's own policy, where a mixed step hides nothing.
pub const MARGINAL_WORK: PolicySeries =
    line("marginal-work", "marginal-work", Policy::MarginalWork, "#cc79a7");
/// The same where a chunk hides behind the decodes.
pub const MARGINAL_WORK_HIDDEN: PolicySeries = PolicySeries {
    name: "marginal-work, hide 1",
    key: "marginal-work-hide-1",
    hide_permille: 1_000,
    colour: "#7b1f56",
    ..MARGINAL_WORK
};

/// One setting, to be replayed with several seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    pub machine: Machine,
    pub dataset: Dataset,
    /// RelQueries per second, in hundredths.
    pub load: u32,
    pub line: PolicySeries,
    /// The starvation threshold (RelServe, Eq. 13).
    pub unit_waiting_max: Option<Millis>,
    /// KV memory in tokens, where it is not the machine's own.
    pub kv_tokens: Option<u32>,
}

impl Setting {
    /// A setting without a starvation threshold.
    pub fn new(machine: Machine, dataset: Dataset, load: u32, line: PolicySeries) -> Self {
        Self { machine, dataset, load, line, unit_waiting_max: None, kv_tokens: None }
    }

    /// RelQueries per second.
    pub fn rate(&self) -> f64 {
        rate(self.load)
    }

    /// The workload of a seed: the same for all policies.
    pub fn trace(&self, size: TraceSize, seed: u64) -> Trace {
        let workload = Workload::new(self.dataset, self.rate(), seed);
        generate(&Workload { relqueries: size.relqueries, rows: (1, size.rows_max), ..workload })
    }

    /// The machine under this setting.
    pub fn config(&self) -> ReplayConfig {
        let mut config = self.machine.config(self.line.hide_permille);
        config.scheduler.unit_waiting_ms_max = self.unit_waiting_max;
        if let Some(tokens) = self.kv_tokens {
            config.scheduler.kv_blocks = tokens / config.scheduler.block_tokens;
        }
        config
    }
}

/// A load as relQueries per second.
pub fn rate(load: u32) -> f64 {
    f64::from(load) / 100.0
}

/// How large a trace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceSize {
    /// How many relQueries.
    pub relqueries: usize,
    /// Most rows of one.
    pub rows_max: u64,
}

impl TraceSize {
    /// The paper's: 100 relQueries of 1..100 rows.
    pub const PAPER: Self = Self { relqueries: 100, rows_max: 100 };
}
