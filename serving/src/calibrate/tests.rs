//! The calibration against an executor whose times follow known lines.

use std::collections::HashSet;
use std::sync::Arc;

use base::{BatchPlan, StepOutcome};

use super::*;

/// An executor as fast as a cost model says, that refuses plans no engine could run.
struct Lines {
    cost: CostModel,
    /// No step takes less: weights are read once in each.
    least: Nanos,
    blocks: u32,
    block_tokens: u32,
    context_max: u64,
    tokens: u64,
    /// From when more prompt tokens than so many have come, steps take so many thousandths of their time.
    slowed: Option<(u64, u64)>,
}

impl Executor for Lines {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        let mut written = HashSet::new();
        for slot in &plan.slots {
            let read = slot.context.iter().flat_map(|run| run.blocks.iter());
            assert!(read.chain(&slot.write_blocks).all(|block| block.0 < self.blocks), "a block that is not");
            assert!(u64::from(slot.start) + slot.input.len() as u64 <= self.context_max);
            for at in (slot.write_offset..).take(slot.input.len()) {
                let block = slot.write_blocks[(at / self.block_tokens) as usize];
                assert!(written.insert((block, at % self.block_tokens)), "written twice in a step");
            }
        }
        self.tokens += plan.prefill_tokens().0;
        let elapsed = self.cost.mixed(plan.prefill_tokens(), plan.decode_sequences()).max(self.least);
        let permille =
            self.slowed.filter(|(after, _)| self.tokens > *after).map_or(1_000, |(_, permille)| permille);
        let elapsed = Nanos(elapsed.0 * permille / 1_000);
        Ok(StepOutcome { step: plan.step, elapsed, rows: Vec::new(), prompts: Vec::new() })
    }
}

fn calibrate(cost: CostModel, machine: (u32, u32, u64)) -> (Calibration, u64) {
    calibrate_with(cost, Nanos(0), machine, None)
}

fn calibrate_with(
    cost: CostModel,
    least: Nanos,
    (blocks, block_tokens, context_max): (u32, u32, u64),
    slowed: Option<(u64, u64)>,
) -> (Calibration, u64) {
    let model = Model {
        name: "lines".into(),
        aliases: Vec::new(),
        description: "by arithmetic".into(),
        picks_only: false,
        knows_bare_prompts: false,
        text: Arc::new(base::text::ByteText),
        has_chat: false,
        constraints: None,
        context_max: TokenCount(context_max),
        vocab: 257,
        revision: 1,
        kv_blocks: blocks,
        host_kv_blocks: 0,
        block_tokens,
        reuse: base::SectionReuse::Anywhere,
        scores_prompts: false,
        replicas: None,
        defaults: crate::model::Defaults { temperature: 0.0, top_p: 1.0, top_k: None },
        created: 0,
        runs: crate::model::Runs::Engine,
    };
    let mut executor = Lines { cost, least, blocks, block_tokens, context_max, tokens: 0, slowed };
    let calibration = measure(&mut executor, &model).expect("the executor never fails");
    (calibration, executor.tokens)
}

/// A model whose steps take some milliseconds.
fn quick() -> CostModel {
    CostModel {
        prefill_per_token: Nanos(20_000),
        prefill_base: Nanos(1_000_000),
        decode_per_sequence: Nanos(50_000),
        decode_base: Nanos(3_000_000),
        mixed_hidden: 0,
        mixed_hidden_few: None,
    }
}

#[test]
fn the_lines_and_what_a_mixed_step_hides_are_found() {
    let hidden = [(-700_000, 900_000), (0, 0), (900_000, 2_000_000), (2_000_000, -700_000)];
    for (mixed_hidden, few) in hidden {
        let cost = CostModel { mixed_hidden, mixed_hidden_few: Some(few), ..quick() };
        let (found, _) = calibrate(cost, (4_096, 16, 4_096));
        assert_eq!(found.cost, cost);
        let rows = found.samples.iter().filter_map(|sample| match sample {
            Sample::Mixed { sequences, .. } => Some(*sequences),
            Sample::Prefill { .. } | Sample::Decode { .. } => None,
        });
        let rows: Vec<u64> = rows.collect();
        assert_eq!(rows, [4, 4, 4, 64, 64, 64, 64, 64]);
    }
}

#[test]
fn a_kept_model_that_tells_no_few_rows_apart_starts_with_what_all_rows_hide() {
    let before = serde_json::to_string(&CostModel { mixed_hidden: 900_000, ..quick() }).expect("numbers");
    assert!(!before.contains("few"), "{before}");
    let opened = CostModel { mixed_hidden: 900_000, mixed_hidden_few: Some(900_000), ..quick() };
    assert_eq!(read_kept(&before), Some(opened));
    let apart = CostModel { mixed_hidden_few: Some(-5), ..opened };
    assert_eq!(read_kept(&serde_json::to_string(&apart).expect("numbers")), Some(apart));
    assert_eq!(read_kept("{}"), None);
}

#[test]
fn prompts_that_vanish_behind_the_decodes_show_at_least_their_own_time() {
    let cost = CostModel { mixed_hidden: 1_000_000_000, ..quick() };
    let (found, _) = calibrate(cost, (4_096, 16, 4_096));
    assert_eq!(found.cost.mixed_hidden, 1_024 * 20_000);
    assert_eq!(found.cost.mixed_hidden_few, Some(1_024 * 20_000), "few rows hide what many do");
    assert!(found.text().contains("at most H = 20.480 ms (no step showed more)"), "{}", found.text());
}

/// A step reads the weights in 45 ms and computes 1.85 ms for each token meanwhile: no line has a base, and those that are
/// fitted have one, for their shortest steps wait for the weights.
#[test]
fn what_rides_beside_few_rows_costs_by_the_model_what_it_does_where_weights_are_read_meanwhile() {
    let per_token = Nanos(1_850_000);
    let bare = CostModel {
        prefill_per_token: per_token,
        prefill_base: Nanos(0),
        decode_per_sequence: per_token,
        decode_base: Nanos(0),
        mixed_hidden: 0,
        mixed_hidden_few: None,
    };
    let (found, _) = calibrate_with(bare, Nanos(45_000_000), (4_096, 16, 4_096), None);
    assert!(found.cost.prefill_base > Nanos(10_000_000), "{:?}", found.cost);
    let [model, measured] = [found.cost, bare].map(|cost| cost.mixed(TokenCount(64), 4).0);
    assert!(model.abs_diff(measured) < measured / 20, "{model} ns for {measured}: {:?}", found.cost);
}

/// The lines are fitted first; all later steps take a tenth longer.
#[test]
fn a_machine_that_slows_down_shows_what_it_hides_beside_few_rows() {
    let cost = CostModel { prefill_per_token: Nanos(400_000), mixed_hidden_few: Some(2_000_000), ..quick() };
    // Three prefills of each size, then their time is over.
    let lines = 3 * (16 + 192 + 384 + 768);
    let (found, _) = calibrate_with(cost, Nanos(0), (4_096, 16, 4_096), Some((lines, 1_100)));
    assert_eq!(found.cost.prefill_per_token, cost.prefill_per_token);
    let few = found.cost.mixed_hidden_few.expect("there was time");
    assert!((2_000_000..2_400_000).contains(&few), "{few} ns");
}

#[test]
fn a_slow_model_is_measured_at_fewer_sizes() {
    let slow = CostModel { prefill_per_token: Nanos(2_000_000), ..quick() };
    let (found, tokens) = calibrate(slow, (4_096, 16, 4_096));
    assert_eq!(found.cost, CostModel { mixed_hidden_few: Some(0), ..slow });
    assert!(tokens * 2 < 9_000, "{} s of prefill", tokens * 2 / 1_000);
    let (_, tokens) = calibrate(quick(), (4_096, 16, 4_096));
    assert!(tokens > 12_000, "a quick one at all of them: {tokens}");
}

#[test]
fn a_small_pool_and_a_short_context_are_no_obstacle() {
    for machine in [(1, 16, 64), (2, 16, 256), (8, 16, 40), (64, 1, 4_096), (40, 256, 100), (5_000, 7, 4_096)]
    {
        let (found, _) = calibrate(quick(), machine);
        assert_eq!(found.cost.decode(1), quick().decode(1), "{machine:?}");
    }
}

#[test]
fn the_report_states_the_lines_and_hide() {
    let (found, _) = calibrate(quick().hiding(400), (4_096, 16, 4_096));
    let text = found.text();
    for part in [
        "prefill = 0.0200 ms x tokens + 1.000 ms (R2 1.0000)",
        "hides H = 0.800 ms (the middle half of 12 pairs of steps: 0.800 to 0.800 ms) of its prompts",
        "= 0.40",
        "mixed, 64 tokens, 64 rows",
        "mixed, 64 tokens, 4 rows",
        "beside 8 rows at most H = 0.800 ms (the middle half of 5 pairs of steps: 0.800 to 0.800 ms)",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let flat = CostModel { decode_base: Nanos(500_000), ..quick() };
    assert!(calibrate(flat, (4_096, 16, 4_096)).0.text().contains("undefined"));
}
