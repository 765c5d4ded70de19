//! The scheduler and its simulated world against an independent simulator of the same rules, on seeded
//! random traces: the end of every relQuery to a microsecond, under every policy of the paper.

mod reference;

use base::{Millis, Nanos, TokenCount};
use reference::traces::{Family, by_hand, draw};
use reference::{Machine, Policy, RELSERVE, ReferenceOutcome, Transition, Variant};
use scheduler::{CostModel, DecompositionReading, DeltaReading, PaperVariant, PriorityReading};
use sim::{Replay, ReplayConfig, Trace, replay};

/// Traces of each family.
const SEEDS: u64 = 6;

/// A policy under both its names, and what changes in the machine and the configuration.
struct DifferentialCase {
    ours: scheduler::Policy,
    reference: Policy,
    hide_permille: u64,
    unit_waiting_ms_max: Option<Millis>,
    paper_variant: PaperVariant,
}

fn cases() -> Vec<DifferentialCase> {
    use scheduler::Policy as Ours;
    let case = |ours, reference| DifferentialCase {
        ours,
        reference,
        hide_permille: 1_000,
        unit_waiting_ms_max: None,
        paper_variant: PaperVariant::default(),
    };
    let transition = |transition| Policy::RelServe(Variant { transition, ..RELSERVE });
    let starving = Policy::RelServe(Variant { starves_after: Some(50_000_000), ..RELSERVE });
    let sign = PaperVariant { delta: DeltaReading::AsPrinted, ..PaperVariant::default() };
    let algorithm =
        PaperVariant { decomposition: DecompositionReading::AsPrinted, ..PaperVariant::default() };
    let frozen = PaperVariant { priorities: PriorityReading::Frozen, ..PaperVariant::default() };
    let frozen_prefill =
        Policy::RelServe(Variant { transition: Transition::Prefill, is_frozen: true, ..RELSERVE });
    let relserve = |variant| case(Ours::RelServe, Policy::RelServe(variant));
    vec![
        case(Ours::Fcfs, Policy::Vllm),
        case(Ours::Sarathi, Policy::Sarathi),
        DifferentialCase { hide_permille: 0, ..case(Ours::Sarathi, Policy::Sarathi) },
        case(Ours::StaticPriority, Policy::StaticPriority),
        case(Ours::StaticPriorityWeak, Policy::StaticPriorityWeak),
        case(Ours::RelServe, Policy::RelServe(RELSERVE)),
        case(Ours::RelServePrefill, transition(Transition::Prefill)),
        case(Ours::RelServeDecode, transition(Transition::Decode)),
        DifferentialCase { unit_waiting_ms_max: Some(Millis(50)), ..case(Ours::RelServe, starving) },
        DifferentialCase { paper_variant: sign, ..relserve(Variant { sign_as_printed: true, ..RELSERVE }) },
        DifferentialCase {
            paper_variant: algorithm,
            ..relserve(Variant { decomposition_as_printed: true, ..RELSERVE })
        },
        DifferentialCase { paper_variant: frozen, ..relserve(Variant { is_frozen: true, ..RELSERVE }) },
        DifferentialCase { paper_variant: frozen, ..case(Ours::RelServePrefill, frozen_prefill) },
    ]
}

fn config(machine: &Machine, case: &DifferentialCase) -> ReplayConfig {
    let nanos = |value: i128| Nanos(u64::try_from(value).expect("costs are small"));
    let mut config = ReplayConfig {
        cost: CostModel {
            prefill_per_token: nanos(machine.a_p),
            prefill_base: nanos(machine.b_p),
            decode_per_sequence: nanos(machine.a_d),
            decode_base: nanos(machine.b_d),
            ..CostModel::default()
        }
        .hiding(case.hide_permille),
        ..ReplayConfig::default()
    };
    config.scheduler.kv_blocks = machine.cap as u32;
    config.scheduler.step_tokens_max = TokenCount(machine.mnbt);
    config.scheduler.sequences_max = machine.mns as u32;
    config.scheduler.watermark_permille = machine.watermark_permille as u32;
    config.scheduler.unit_waiting_ms_max = case.unit_waiting_ms_max;
    config.scheduler.paper_variant = case.paper_variant;
    config
}

/// Both simulators on one trace.
fn both(case: &DifferentialCase, trace: &Trace, machine: Machine) -> (Replay, ReferenceOutcome) {
    let machine = Machine { hide_permille: i128::from(case.hide_permille), ..machine };
    let expected = reference::run(trace, case.reference, machine);
    let got = replay(trace, case.ours, &config(&machine, case));
    let got = got.unwrap_or_else(|error| panic!("{} {}: {error}", trace.name, case.ours));
    assert_eq!(got.t_done.len(), expected.t_done.len(), "{} {}", trace.name, case.ours);
    (got, expected)
}

/// Where the two part, if they do.
fn difference(name: &str, got: &Replay, expected: &ReferenceOutcome) -> Option<String> {
    let apart = got.t_done.iter().zip(&expected.t_done).map(|(a, b)| (a - b).abs());
    let worst = apart.fold(0.0, f64::max);
    if worst <= 1e-6 && got.counts.preempts == expected.preempts {
        return None;
    }
    let both = got.iterations.iter().zip(&expected.iterations);
    let is_same = |(one, other): &(&sim::Iteration, &(i128, u64, usize))| {
        (i128::from(one.start.0), one.uncached.0, one.decoding) == (other.0, other.1, other.2 as u64)
    };
    let same = both.take_while(is_same).count();
    Some(format!(
        "{name} under {}: {worst:.6} s apart; the first other step is {same}: {:?}, reference {:?}",
        got.policy,
        got.iterations.get(same),
        expected.iterations.get(same),
    ))
}

fn mean(trace: &Trace, ends: &[f64]) -> f64 {
    let latencies = ends.iter().zip(&trace.relqueries).map(|(end, relquery)| end - relquery.arrival);
    latencies.sum::<f64>() / ends.len() as f64
}

/// Prefill 340 tokens, prefill 120, decode 5, decode 3; decode first: prefill 340, decode 3 twice, prefill
/// 120, decode 2; mixed: prefill 340, prefill 120 and decode 3 (with `hide` and without), decode 5.
#[test]
fn the_independent_simulator_ends_two_relqueries_when_they_end_by_hand() {
    let decode_first = Policy::RelServe(Variant { transition: Transition::Decode, ..RELSERVE });
    for (policy, hide_permille, ends) in [
        (Policy::Vllm, 1_000, [0.1196, 0.09325]),
        (Policy::RelServe(RELSERVE), 1_000, [0.1196, 0.09325]),
        (decode_first, 1_000, [0.0967, 0.1446]),
        (Policy::Sarathi, 1_000, [0.0976, 0.0976]),
        (Policy::Sarathi, 0, [0.1096, 0.1096]),
    ] {
        let got = reference::run(&by_hand(), policy, Machine { hide_permille, ..Machine::default() });
        assert!(got.t_done.iter().zip(ends).all(|(a, b)| (a - b).abs() < 1e-9), "{policy:?}: {got:?}");
    }
}

#[test]
fn every_relquery_ends_when_the_independent_simulator_says() {
    let (mut findings, mut preempts) = (Vec::new(), 0);
    for family in Family::DISTINCT {
        for (trace, machine) in (0..SEEDS).map(|seed| draw(family, seed)) {
            for case in cases() {
                let (got, expected) = both(&case, &trace, machine);
                findings.extend(difference(&trace.name, &got, &expected));
                preempts += expected.preempts;
            }
        }
    }
    assert!(findings.is_empty(), "{} differ:\n{}", findings.len(), findings.join("\n"));
    assert!(preempts > 1_000, "memory was never short: {preempts} preemptions");
}

/// Found by this comparison: what a mixed step offers was listed before it made room for its decodes.
#[test]
fn a_row_preempted_by_a_mixed_step_waits_before_those_that_come_after_it() {
    let (trace, machine) = draw(Family::Shortage, 47);
    let sarathi = &cases()[1];
    assert_eq!(sarathi.ours, scheduler::Policy::Sarathi);
    let (got, expected) = both(sarathi, &trace, machine);
    assert_eq!(difference(&trace.name, &got, &expected), None);
}

/// The rules hold a prompt that is there already for nothing. A pool of blocks cannot: the last token must be
/// computed to sample from, and it is written into a block of the row's own. So ends may differ where whole
/// prompts repeat under shortage; means stay near.
#[test]
fn prompts_that_repeat_whole_differ_by_the_block_of_their_last_token_only() {
    for case in cases() {
        let (mut ours, mut theirs) = (0.0, 0.0);
        for (trace, machine) in (0..SEEDS).map(|seed| draw(Family::Repeats, seed)) {
            let (got, expected) = both(&case, &trace, machine);
            ours += got.summary.mean;
            theirs += mean(&trace, &expected.t_done);
        }
        assert!((ours / theirs - 1.0).abs() < 0.02, "{}: {ours} and {theirs}", case.ours);
    }
}
