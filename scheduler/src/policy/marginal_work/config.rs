//! The parts of policy `marginal-work`, each of which can be switched off to see what it gives.

use base::{Millis, TokenCount};
use serde::{Deserialize, Serialize};

/// How prompts and decodes share steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steps {
    /// Mixed where the cost model says that mixing saves time, else two-phase.
    #[default]
    Adaptive,
    /// Everything that runs decodes in every step, prompts ride along.
    Mixed,
    /// A step prefills or decodes.
    TwoPhase,
}

/// Weight of what waiting relQueries gain by a row that joins the batch, against what relQueries ahead
/// of it lose, where a mixed step hides at least half of what it can. Where it hides less nothing is weighed: the
/// cost model decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gain {
    /// Where a mixed step hides nothing: one end of the scale.
    pub bare: u32,
    /// Where it hides all it can; between the two by the share it hides.
    pub hidden: u32,
    /// A row of a lower class than one that runs counts this many times less, whatever hides.
    pub lower_class: u32,
}

impl Default for Gain {
    fn default() -> Self {
        Self { bare: 30, hidden: 1, lower_class: 8 }
    }
}

/// Settings of policy `marginal-work`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MarginalWorkConfig {
    /// How prompts and decodes share steps.
    pub steps: Steps,
    /// Key by the work a row adds to a shared batch; off: by the time the relQuery would take alone
    /// (RelServe, Eq. 10).
    pub marginal_key: bool,
    /// Expect output lengths as finished rows had them; off: expect every row to reach its limit.
    pub learned_lengths: bool,
    /// Count prompt tokens that an earlier row of the relQuery supplies as cached; off: sample the
    /// cache as it is (RelServe, Eq. 11).
    pub exact_sharing: bool,
    /// Take rows with equal beginnings one after the other; off: as submitted.
    pub grouped_rows: bool,
    /// When rows may join the batch of relQueries ahead of them; absent: as long as they fit.
    pub gain: Option<Gain>,
    /// Waiting that makes a relQuery's work count half; absent: age does not count. The less, the
    /// shorter the longest waits and the longer the mean.
    pub age_half_ms: Option<Millis>,
    /// The same in times the mean work of the relQueries that came lately, where that is longer: minutes mean less
    /// where each keeps the machine busy for one. 0: `age_half_ms` alone.
    pub age_half_works: u32,
    /// The longest latency that is borne, in thousandths of the longest that first come, first served would have
    /// had lately. 0: any. Replicas have a bound of their own.
    pub tail_permille_max: u32,
    /// Thousandths of the relQueries that may be later than that: 10 bounds the 99th percentile and lets one in a hundred,
    /// the largest, wait for as long as without a bound. 0: none.
    pub late_permille_max: u32,
    /// Two-phase: fewest prompt tokens worth a prefill step while memory is what limits it.
    pub prefill_tokens_min: TokenCount,
    /// How far, in time of the machine at its weight, a tenant may be served ahead of another that waits, beside
    /// the time that this one's waiting relQueries take.
    pub tenant_lag_ms_max: Millis,
    /// Waiting after which a relQuery of class `dashboard` counts as interactive.
    pub dashboard_wait_ms_max: Millis,
    /// The same of class `bulk`.
    pub bulk_wait_ms_max: Millis,
    /// Thousandths of a step's time that bulk rows may add while rows of a higher class are here (one row at
    /// least); they also give their memory up for those. Absent: they share steps as all others do.
    pub bulk_share_permille: Option<u32>,
    /// Thousandths of its time by which the last row of a relQuery that is alone here may end later, so that its
    /// first rows end early: under this policy, and under `auto` with `fairness`, whichever policy it names. 0: all its
    /// rows run alike.
    pub first_rows_permille: u32,
    /// Rows of a lower class give their memory up for one of a higher class that finds none.
    pub evict_lower_class: bool,
}

impl Default for MarginalWorkConfig {
    fn default() -> Self {
        Self {
            steps: Steps::default(),
            marginal_key: true,
            learned_lengths: true,
            exact_sharing: true,
            grouped_rows: true,
            gain: Some(Gain::default()),
            age_half_ms: Some(Millis(120_000)),
            age_half_works: 100,
            tail_permille_max: 0,
            late_permille_max: 0,
            prefill_tokens_min: TokenCount(1_000),
            tenant_lag_ms_max: Millis(5_000),
            dashboard_wait_ms_max: Millis(60_000),
            bulk_wait_ms_max: Millis(3_600_000),
            bulk_share_permille: Some(50),
            first_rows_permille: 20,
            evict_lower_class: false,
        }
    }
}

impl MarginalWorkConfig {
    /// Whether steps may prefill and decode at once.
    pub fn mixes(&self) -> bool {
        self.steps != Steps::TwoPhase
    }
}
