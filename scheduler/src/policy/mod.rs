//! The policies: in which order relQueries are served, and what a step does.
//!
//! A policy is a file of this folder with a table of [`Rules`]: what is true of it, and four functions. To add one, write
//! its file, give [`Policy`] a variant and [`Policy::rules`] an arm; everything else asks the rules. All policies run on
//! the same machine (admission, ledger, preemption), so that a comparison compares orders and nothing else.
//!
//! No other module may know which policy it serves: it asks for a property, as `policy.orders_by_class()`.

mod fcfs;
pub mod marginal_work;
mod relserve;
mod sarathi;
mod static_priority;

use base::{Nanos, RelQueryId, Time};
use serde::{Deserialize, Serialize};

use crate::Scheduler;
use crate::breakdown::PriorityBreakdown;
use crate::choose::Choice;
use crate::config::SchedulerConfig;

/// The order in which relQueries are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Policy {
    /// First come, first served, prefill first (vLLM's default).
    Fcfs,
    /// First come, first served, prompts cut into chunks that ride along with decodes (Sarathi).
    Sarathi,
    /// A fixed priority per relQuery from its token counts, prefill first (the paper's vLLM-SP).
    StaticPriority,
    /// The same with raw token counts as the priority, and running rows of strictly lower priority
    /// give way to the first waiting one: the reading under which the paper's margin over its
    /// baseline comes closest.
    StaticPriorityWeak,
    /// RelServe: priorities updated every iteration, adaptive choice of prefill or decode.
    RelServe,
    /// RelServe's ablation: prefill first in the transitional case.
    RelServePrefill,
    /// RelServe's ablation: decode first in the transitional case.
    RelServeDecode,
    /// Mixed steps under remaining marginal work: see [`marginal_work`].
    #[default]
    MarginalWork,
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPolicy {
    /// One had it before.
    #[error("policy `{old}` is called `{new}` now")]
    Renamed {
        /// As written.
        old: String,
        /// Its name now.
        new: Policy,
    },
    /// None ever had it.
    #[error("policy `{name}` is not one of {}", Policy::WITH_VARIANTS.map(Policy::name).join(", "))]
    Unknown {
        /// As written.
        name: String,
    },
}

/// What policies were called before.
const RENAMED: [(&str, Policy); 1] = [("ours", Policy::MarginalWork)];

/// What a policy does. The functions are called by the scheduler and nobody else.
pub(crate) struct Rules {
    /// Its name in configuration and reports.
    name: &'static str,
    /// The name that the reference results have for what it imitates.
    imitates: &'static str,
    traits: Traits,
    /// Prio(R) of a relQuery, and what it was computed from: on its arrival, when rows are added, and whenever `on_plan`
    /// asks for it anew.
    pub(crate) priority: fn(&mut Scheduler, RelQueryId) -> (Nanos, PriorityBreakdown),
    /// Which candidate the next step runs.
    pub(crate) choose: fn(&mut Scheduler) -> Choice,
    /// A relQuery got rows; before its priority is computed.
    pub(crate) on_arrival: fn(&mut Scheduler, RelQueryId),
    /// A step is about to be planned: brings priorities up to date.
    pub(crate) on_plan: fn(&mut Scheduler, Time),
}

/// What others may know of a policy.
struct Traits {
    is_prioritised: bool,
    orders_by_class: bool,
    shares_by_tenant: bool,
    reads_the_paper: bool,
    prompts: Prompts,
}

/// How much of a prompt one step computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prompts {
    /// All of it.
    Whole,
    /// All or a part, as its settings and the engine have it.
    WholeOrCut,
    /// As much as the decodes of the step leave of `chunk_tokens`.
    Cut,
}

/// First come, first served, in steps of one phase: each policy says what it does otherwise.
const PLAIN: Traits = Traits {
    is_prioritised: false,
    orders_by_class: false,
    shares_by_tenant: false,
    reads_the_paper: false,
    prompts: Prompts::Whole,
};

impl Policy {
    /// Every policy of the comparison, in the order reports list them; the weak reading of the static
    /// one is a variant of it.
    pub const ALL: [Self; 7] = [
        Self::Fcfs,
        Self::Sarathi,
        Self::StaticPriority,
        Self::RelServe,
        Self::RelServePrefill,
        Self::RelServeDecode,
        Self::MarginalWork,
    ];

    /// Those and all their variants.
    pub const WITH_VARIANTS: [Self; 8] = [
        Self::Fcfs,
        Self::Sarathi,
        Self::StaticPriority,
        Self::StaticPriorityWeak,
        Self::RelServe,
        Self::RelServePrefill,
        Self::RelServeDecode,
        Self::MarginalWork,
    ];

    /// What it does.
    pub(crate) fn rules(self) -> &'static Rules {
        match self {
            Self::Fcfs => &fcfs::RULES,
            Self::Sarathi => &sarathi::RULES,
            Self::StaticPriority => &static_priority::RULES,
            Self::StaticPriorityWeak => &static_priority::WEAK,
            Self::RelServe => &relserve::RULES,
            Self::RelServePrefill => &relserve::PREFILL_FIRST,
            Self::RelServeDecode => &relserve::DECODE_FIRST,
            Self::MarginalWork => &marginal_work::RULES,
        }
    }

    /// The name used in configuration and reports.
    pub fn name(self) -> &'static str {
        self.rules().name
    }

    /// The name that the reference results have for what it imitates.
    pub fn imitates(self) -> &'static str {
        self.rules().imitates
    }

    /// Whether it is RelServe or one of its ablations, which are told how the paper is read
    /// ([`PaperVariant`](crate::paper_variant::PaperVariant), Eq. 13's threshold).
    pub fn reads_the_paper(self) -> bool {
        self.rules().traits.reads_the_paper
    }

    /// Whether a priority comes before the arrival in the key; if not, no row starts while one of an earlier relQuery
    /// has not.
    pub fn is_prioritised(self) -> bool {
        self.rules().traits.is_prioritised
    }

    /// Whether a service class comes before everything else in the key; the published policies know none.
    pub fn orders_by_class(self) -> bool {
        self.rules().traits.orders_by_class
    }

    /// Whether tenants have shares of the machine.
    pub fn shares_by_tenant(self) -> bool {
        self.rules().traits.shares_by_tenant
    }

    /// Whether a prompt may be computed in several steps.
    pub fn cuts_prompts(self) -> bool {
        self.rules().traits.prompts != Prompts::Whole
    }

    /// Whether prompts get what decodes leave of `chunk_tokens`, so that no step is larger than that.
    pub fn always_cuts_prompts(self) -> bool {
        self.rules().traits.prompts == Prompts::Cut
    }

    /// Whether its steps may prefill and decode at once.
    pub fn mixes_prefill_and_decode(self, config: &SchedulerConfig) -> bool {
        match self.rules().traits.prompts {
            Prompts::Whole => false,
            Prompts::WholeOrCut => config.marginal_work.mixes(),
            Prompts::Cut => true,
        }
    }

    /// Most tokens that a step of it computes: of prompts, or where it mixes, of all.
    pub fn step_tokens_max(self, config: &SchedulerConfig) -> u64 {
        if self.always_cuts_prompts() { config.chunk_tokens.0 } else { config.step_tokens_max.0 }
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        if let Some((_, new)) = RENAMED.into_iter().find(|(old, _)| *old == name) {
            return Err(UnknownPolicy::Renamed { old: name.to_owned(), new });
        }
        let found = Self::WITH_VARIANTS.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| UnknownPolicy::Unknown { name: name.to_owned() })
    }
}

impl TryFrom<String> for Policy {
    type Error = UnknownPolicy;

    fn try_from(name: String) -> Result<Self, UnknownPolicy> {
        name.parse()
    }
}

impl From<Policy> for &'static str {
    fn from(policy: Policy) -> Self {
        policy.name()
    }
}

/// A priority of nothing: the key's arrival and id decide.
fn by_arrival(_: &mut Scheduler, _: RelQueryId) -> (Nanos, PriorityBreakdown) {
    (Nanos(0), PriorityBreakdown::default())
}

/// Nothing is kept by arrival.
fn no_arrival(_: &mut Scheduler, _: RelQueryId) {}

/// Priorities stay what they were on arrival.
fn no_update(_: &mut Scheduler, _: Time) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_and_reports_call_a_policy_the_same() {
        for policy in Policy::WITH_VARIANTS {
            let name = serde_json::Value::from(policy.name());
            assert_eq!(serde_json::to_value(policy).ok(), Some(name.clone()));
            assert_eq!(serde_json::from_value(name).ok(), Some(policy));
        }
    }

    #[test]
    fn an_old_name_is_refused_with_the_new_one_and_a_wrong_one_with_those_there_are() {
        let error = |name: &str| name.parse::<Policy>().expect_err("no such policy").to_string();
        assert_eq!(error("ours"), "policy `ours` is called `marginal-work` now");
        assert!(error("best").starts_with("policy `best` is not one of fcfs, sarathi"));
    }
}
