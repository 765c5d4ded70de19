//! The policies: in which order relQueries are served, and what a step does.
//!
//! A policy is a file of this folder with its `RULES` (`rules.rs` says which): four functions, of which
//! `priority` computes what orders a relQuery's rows and `choose` says what a step runs. To add one:
//!
//! 1. write its file, `policy/<name>.rs`, with a constant `RULES`;
//! 2. name the file in `table.rs`;
//! 3. give [`Policy`] a variant, its name and properties in `Policy::traits`, and its place in
//!    [`Policy::WITH_VARIANTS`], without which no configuration can name it, and in [`Policy::ALL`].
//!
//! Everything else asks these. All policies run on the same machine (admission, ledger, preemption), so that
//! a comparison compares orders and nothing else.
//!
//! No other module may know which policy it serves: it asks for a property, as `policy.cuts_prompts()`.
//! What is below knows nothing of the scheduler, so that configuration and keys can name a policy.

pub mod auto;
mod fcfs;
pub mod marginal_work;
mod relserve;
pub(crate) mod rules;
mod sarathi;
mod static_priority;
mod table;
pub(crate) mod transition;
pub(crate) mod view;

use serde::{Deserialize, Serialize};

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
    MarginalWork,
    /// The same with an age that counts a third as soon: a lower mean where more comes than can be done, for
    /// longer longest waits.
    MarginalWorkSlowAging,
    /// No policy of its own: the one of [`Policy::CANDIDATES`] that served the last minutes best.
    #[default]
    Auto,
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

/// What is true of a policy. What it does is in its file.
struct Traits {
    /// Its name in configuration and reports.
    name: &'static str,
    /// The name that the reference results have for what it imitates.
    imitates: &'static str,
    is_prioritised: bool,
    is_fair: bool,
    bounds_tail: bool,
    shows_first_rows: bool,
    reads_the_paper: bool,
    age_times: u64,
    prompts: Prompts,
}

impl Traits {
    /// First come, first served, in steps of one phase: each policy says what it is otherwise.
    const fn plain(name: &'static str, imitates: &'static str) -> Self {
        Self {
            name,
            imitates,
            is_prioritised: false,
            is_fair: false,
            bounds_tail: false,
            shows_first_rows: false,
            reads_the_paper: false,
            age_times: 1,
            prompts: Prompts::Whole,
        }
    }

    /// In the order of a priority.
    const fn prioritised(name: &'static str, imitates: &'static str) -> Self {
        Self { is_prioritised: true, ..Self::plain(name, imitates) }
    }

    /// RelServe or an ablation of it.
    const fn of_the_paper(name: &'static str) -> Self {
        Self { reads_the_paper: true, ..Self::prioritised(name, name) }
    }
}

/// How much of a prompt one step computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prompts {
    Whole,
    /// All or a part, as its settings and the engine have it.
    WholeOrCut,
    /// As much as the decodes of the step leave of `chunk_tokens`.
    Cut,
}

impl Policy {
    /// Every policy of the comparison, in the order reports list them; the weak reading of the static
    /// one and slow aging are variants.
    pub const ALL: [Self; 7] = [
        Self::Fcfs,
        Self::Sarathi,
        Self::StaticPriority,
        Self::RelServe,
        Self::RelServePrefill,
        Self::RelServeDecode,
        Self::MarginalWork,
    ];

    /// Those, their variants, and the choice among them.
    pub const WITH_VARIANTS: [Self; 10] = [
        Self::Fcfs,
        Self::Sarathi,
        Self::StaticPriority,
        Self::StaticPriorityWeak,
        Self::RelServe,
        Self::RelServePrefill,
        Self::RelServeDecode,
        Self::MarginalWork,
        Self::MarginalWorkSlowAging,
        Self::Auto,
    ];

    /// What is true of it.
    const fn traits(self) -> Traits {
        match self {
            Self::Fcfs => Traits::plain("fcfs", "vllm"),
            Self::Sarathi => Traits { prompts: Prompts::Cut, ..Traits::plain("sarathi", "sarathi") },
            Self::StaticPriority => Traits::prioritised("static-priority", "vllm-sp"),
            Self::StaticPriorityWeak => Traits::prioritised("static-priority-weak", "vllm-sp weak"),
            Self::RelServe => Traits::of_the_paper("relserve"),
            Self::RelServePrefill => Traits::of_the_paper("relserve-pp"),
            Self::RelServeDecode => Traits::of_the_paper("relserve-dp"),
            Self::MarginalWork => Traits {
                is_fair: true,
                bounds_tail: true,
                shows_first_rows: true,
                prompts: Prompts::WholeOrCut,
                ..Traits::prioritised("marginal-work", "marginal-work")
            },
            Self::MarginalWorkSlowAging => Traits {
                name: "marginal-work-slow-aging",
                imitates: "marginal-work-slow-aging",
                age_times: 3,
                ..Self::MarginalWork.traits()
            },
            // What any of its candidates may do: sizes are made for the largest.
            Self::Auto => Traits { name: "auto", imitates: "auto", ..Self::MarginalWork.traits() },
        }
    }

    /// The name used in configuration and reports.
    pub fn name(self) -> &'static str {
        self.traits().name
    }

    /// The name that the reference results have for what it imitates.
    pub fn imitates(self) -> &'static str {
        self.traits().imitates
    }

    /// Whether it is RelServe or one of its ablations, which are told how the paper is read
    /// ([`PaperVariant`](crate::paper_variant::PaperVariant), Eq. 13's threshold).
    pub fn reads_the_paper(self) -> bool {
        self.traits().reads_the_paper
    }

    /// Whether a priority comes before the arrival in the key; if not, no row starts while one of an earlier
    /// relQuery has not.
    pub fn is_prioritised(self) -> bool {
        self.traits().is_prioritised
    }

    /// Whether it serves by class, share and deadline where nothing else is said
    /// ([`SchedulerConfig::fairness`](crate::SchedulerConfig::fairness)); the published policies know none.
    pub(crate) fn is_fair(self) -> bool {
        self.traits().is_fair
    }

    /// Whether it bounds the longest latency by the one that first come, first served would have.
    pub(crate) fn bounds_tail(self) -> bool {
        self.traits().bounds_tail
    }

    /// Whether first rows of a relQuery that is alone end early under it, whoever names it
    /// ([`MarginalWorkConfig::first_rows_permille`](marginal_work::MarginalWorkConfig::first_rows_permille)).
    pub(crate) fn shows_first_rows(self) -> bool {
        self.traits().shows_first_rows
    }

    /// How many times as long as the settings say anything waits until its age counts.
    pub(crate) fn age_times(self) -> u64 {
        self.traits().age_times
    }

    /// Whether a prompt may be computed in several steps.
    pub fn cuts_prompts(self) -> bool {
        self.traits().prompts != Prompts::Whole
    }

    /// Whether prompts get what decodes leave of `chunk_tokens`, so that no step is larger than that.
    pub fn always_cuts_prompts(self) -> bool {
        self.traits().prompts == Prompts::Cut
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
