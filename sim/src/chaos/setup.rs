//! What kind of world a seed is: limits, policy with its settings, machine, and what goes wrong in it.

use base::{Millis, Nanos, TokenCount};
use scheduler::{
    CostModel, DecompositionReading, DeltaReading, Gain, MarginalWorkConfig, PaperVariant, Policy,
    PriorityReading, SchedulerConfig, Speculation, Steps,
};

use super::draws::ChaosDraws;

/// How often something happens: once in so many chances, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// A burst of relQueries, per turn.
    pub(super) arrivals: u64,
    /// Rows added to a relQuery, per turn.
    pub(super) extends: u64,
    /// A relQuery or a row called off, per chance.
    pub(super) cancels: u64,
    /// A step that fails whole for reasons of its own.
    pub(super) aborts: u64,
    /// A row whose sampling fails, per row.
    pub(super) broken: u64,
    /// A row with which every step fails, per row.
    pub(super) poison: u64,
    /// An outcome of another step that arrives in between.
    pub(super) strays: u64,
    /// A sampled row that the executor forgets to answer for.
    pub(super) missing: u64,
    /// A row that ends before its limit, per token.
    pub(super) stops: u64,
    /// Tokens that are forced behind a sampled one, per sample.
    pub(super) forced: u64,
    /// A slot whose guesses the executor takes no notice of.
    pub(super) unverified: u64,
}

/// A world's constants.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) config: SchedulerConfig,
    pub(super) cost: CostModel,
    pub(super) rates: Rates,
    /// Turns in which things arrive and go wrong; then the rest is worked off.
    pub(super) turns: u64,
    /// Most rows of a relQuery, most tokens of a row beside its template, and of its output.
    pub(super) rows_max: u64,
    pub(super) prompt_max: u64,
    pub(super) output_max: u64,
    pub(super) tenants: u64,
    /// Whether relQueries have service classes and deadlines.
    pub(super) classes: bool,
    /// Whether time mostly stands still, so that arrivals tie.
    pub(super) ties: bool,
    /// Whether time goes back too, and to its ends.
    pub(super) wild_clock: bool,
}

impl Setup {
    pub(super) fn draw(draws: &mut ChaosDraws) -> Self {
        let config = config(draws);
        let hide = draws.below(1_001);
        let rows_max = draws.between(1, 8);
        Self {
            cost: CostModel::default().hiding(hide),
            rates: rates(draws),
            turns: draws.between(40, 160),
            rows_max,
            prompt_max: draws.between(1, 20),
            output_max: draws.between(1, 12),
            tenants: draws.between(1, 4),
            classes: draws.one_in(2),
            ties: draws.one_in(3),
            wild_clock: false,
            config,
        }
    }

    /// The same world with costs and times at their ends.
    pub(super) fn extreme(self, draws: &mut ChaosDraws) -> Self {
        let mut span = || Nanos(draws.pick(&[0, 0, 1, u64::MAX]));
        let lines = CostModel {
            prefill_per_token: span(),
            prefill_base: span(),
            decode_per_sequence: span(),
            decode_base: span(),
            ..CostModel::default()
        };
        let mixed_hidden = draws.pick(&[0, i64::MIN, i64::MAX]);
        // Few rows hide all that many do not.
        let cost = CostModel { mixed_hidden, mixed_hidden_few: Some(!mixed_hidden), ..lines };
        Self { cost, wild_clock: true, ..self }
    }
}

fn config(draws: &mut ChaosDraws) -> SchedulerConfig {
    let policy = draws.pick(&Policy::WITH_VARIANTS);
    let block_tokens = draws.between(1, 5) as u32;
    let sequences_max = draws.between(1, 10) as u32;
    SchedulerConfig {
        policy,
        block_tokens,
        sequences_max,
        step_tokens_max: TokenCount(draws.between(1, 70)),
        chunk_tokens: TokenCount(u64::from(sequences_max) + draws.between(1, 20)),
        // From hardly one row to room for most of what runs.
        kv_blocks: (draws.between(12, 90) as u32).div_ceil(block_tokens).max(2),
        host_kv_blocks: draws.pick(&[0, 0, 1, 6, 60]),
        host_kv_reused_only: draws.one_in(3),
        watermark_permille: if draws.one_in(2) { 10 } else { draws.below(400) as u32 },
        rows_max: draws.between(8, 60) as u32,
        relqueries_max: draws.between(2, 30) as u32,
        attempts_max: draws.between(1, 4) as u32,
        sample_rows: draws.between(1, 8) as u32,
        unit_waiting_ms_max: draws.one_in(2).then(|| Millis(draws.below(40))),
        publish_generated: draws.one_in(2),
        refit: draws.one_in(2),
        paper_variant: PaperVariant {
            delta: draws.pick(&[DeltaReading::Figure8, DeltaReading::AsPrinted]),
            decomposition: draws.pick(&[DecompositionReading::Corrected, DecompositionReading::AsPrinted]),
            priorities: draws.pick(&[PriorityReading::Updated, PriorityReading::Frozen]),
        },
        marginal_work: marginal_work(draws),
        speculation: draws.pick(&[Speculation::Off, Speculation::Auto]),
        ..SchedulerConfig::default()
    }
}

fn marginal_work(draws: &mut ChaosDraws) -> MarginalWorkConfig {
    let limits = [0, 3, 50, 2_000, 1_000_000];
    MarginalWorkConfig {
        steps: draws.pick(&[Steps::Adaptive, Steps::Mixed, Steps::TwoPhase]),
        marginal_key: !draws.one_in(4),
        learned_lengths: !draws.one_in(4),
        exact_sharing: !draws.one_in(4),
        grouped_rows: draws.one_in(2),
        gain: draws.one_in(2).then(Gain::default),
        age_half_ms: draws.pick(&[None, Some(Millis(1)), Some(Millis(100))]),
        age_half_works: 100,
        tail_permille_max: draws.pick(&[0, 1, 1_500]),
        late_permille_max: draws.pick(&[0, 10, 500]),
        first_rows_permille: 20,
        prefill_tokens_min: TokenCount(draws.below(40)),
        tenant_lag_ms_max: Millis(draws.pick(&limits)),
        dashboard_wait_ms_max: Millis(draws.pick(&limits)),
        bulk_wait_ms_max: Millis(draws.pick(&limits)),
        evict_lower_class: draws.one_in(2),
        bulk_share_permille: draws.pick(&[None, Some(0), Some(50), Some(1_000)]),
    }
}

/// A third of the worlds is free of failures, so that promises about order can be held to the letter.
fn rates(draws: &mut ChaosDraws) -> Rates {
    let peaceful = Rates {
        arrivals: draws.between(1, 8),
        extends: draws.pick(&[0, 4, 12]),
        stops: draws.pick(&[0, 3, 10]),
        forced: draws.pick(&[0, 2, 6]),
        unverified: draws.pick(&[0, 3]),
        strays: draws.pick(&[0, 5]),
        ..Rates::default()
    };
    if draws.one_in(3) {
        return peaceful;
    }
    Rates {
        cancels: draws.pick(&[0, 5, 15]),
        aborts: draws.pick(&[0, 0, 4, 12]),
        broken: draws.pick(&[0, 6, 30]),
        poison: draws.pick(&[0, 0, 10, 40]),
        missing: draws.pick(&[0, 0, 40]),
        ..peaceful
    }
}
