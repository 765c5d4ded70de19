//! Policies in front of one replica that knows rows only: mean and 99th percentile of relQueries' latencies.
//!
//! ```text
//! cargo run --release -p sim --example fleet_order [SEED]
//! ```

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use base::{Nanos, TokenCount};
use scheduler::fleet::{FleetConfig, ReplicaConfig};
use scheduler::policy::marginal_work::MarginalWorkConfig;
use scheduler::{CostModel, Policy, SchedulerConfig};
use sim::fleet::{FleetMachine, replay_fleet};
use sim::watch::Unwatched;
use sim::{Dataset, ReplayConfig, Workload, generate};

/// Its name, ns per prompt token, of a prefill, per sequence, of a decode, and hidden in a mixed step; relQueries per s
/// of which it can do about as many, and their rows.
type LoadedReplica = (&'static str, [u64; 4], i64, f64, (u64, u64));

const MACHINES: [LoadedReplica; 4] = [
    ("125M bf16 CPU, rows 1..16", [200_000, 3_000_000, 700_000, 10_000_000], 0, 1.0, (1, 16)),
    ("60M bf16 CPU, rows 1..100", [90_000, 3_000_000, 350_000, 8_000_000], 0, 0.35, (1, 100)),
    ("small base, rows 1..100", [90_000, 500_000, 350_000, 1_000_000], 0, 0.35, (1, 100)),
    ("OPT-13B A100, rows 1..100", [100_000, 5_000_000, 450_000, 25_000_000], 20_000_000, 0.3, (1, 100)),
];

fn machine(
    [a_p, b_p, a_d, b_d]: [u64; 4],
    hidden: i64,
    rows_max: u32,
    gain: bool,
    (tail, late): (u32, u32),
) -> FleetMachine {
    let scheduler = ReplayConfig::default().scheduler;
    let cost = CostModel {
        prefill_per_token: Nanos(a_p),
        prefill_base: Nanos(b_p),
        decode_per_sequence: Nanos(a_d),
        decode_base: Nanos(b_d),
        mixed_hidden: hidden,
        mixed_hidden_few: None,
    };
    let inner = SchedulerConfig {
        policy: Policy::Sarathi,
        fairness: Some(false),
        chunk_tokens: TokenCount(2_048),
        step_tokens_max: TokenCount(2_048),
        sequences_max: rows_max,
        kv_blocks: 400_000,
        ..scheduler.clone()
    };
    let mut queue = SchedulerConfig { refit: true, ..scheduler };
    if !gain {
        queue.marginal_work = MarginalWorkConfig { gain: None, ..queue.marginal_work };
    }
    FleetMachine {
        replicas: 1,
        replica: ReplicaConfig { rows_max, tokens_max: None },
        reported: None,
        inner,
        cost,
        transport: Nanos(2_000_000),
        fleet: FleetConfig {
            rows_max: u32::MAX,
            relqueries_max: u32::MAX,
            tail_permille_max: tail,
            late_permille_max: late,
            ..FleetConfig::default()
        },
        queue,
    }
}

fn main() -> Result<(), sim::SimError> {
    let seed = std::env::args().nth(1).and_then(|seed| seed.parse().ok()).unwrap_or(0);
    // `marginal-work` with and without holding rows back, and under bounds on the longest latency and (`p99`) on the 99th
    // percentile; `relserve-pp` is `relserve` without.
    let policies = [
        ("fcfs", Policy::Fcfs, true, (0, 0)),
        ("static", Policy::StaticPriority, true, (0, 0)),
        ("relserve-pp", Policy::RelServePrefill, true, (0, 0)),
        ("relserve", Policy::RelServe, true, (0, 0)),
        ("relserve-dp", Policy::RelServeDecode, true, (0, 0)),
        ("marginal -", Policy::MarginalWork, false, (0, 0)),
        ("marginal", Policy::MarginalWork, true, (0, 0)),
        ("m. 2.0", Policy::MarginalWork, true, (2_000, 0)),
        ("m. 1.5", Policy::MarginalWork, true, (1_500, 0)),
        ("m. 1.0", Policy::MarginalWork, true, (1_000, 0)),
        ("m. p99 1.5", Policy::MarginalWork, true, (1_500, 10)),
        ("m. p99 1.25", Policy::MarginalWork, true, (1_250, 10)),
        ("m. p99 1.0", Policy::MarginalWork, true, (1_000, 10)),
    ];
    let names: String = policies.iter().map(|(name, ..)| format!(" {name:>15}")).collect();
    println!("{:36}{names}   (mean, p99 in s)", "machine, rows, load");
    for (name, cost, hidden, rate, rows) in MACHINES {
        for load in [0.5, 1.0, 1.6, 3.0] {
            let workload =
                Workload { relqueries: 100, rows, ..Workload::new(Dataset::Rotten, rate * load, seed) };
            let trace = generate(&workload);
            print!("{name:28} {:5.2}/s", rate * load);
            for (_, policy, gain, tail) in policies {
                let machine = machine(cost, hidden, 64, gain, tail);
                let summary = replay_fleet(&trace, policy, &machine, &mut Unwatched)?.summary;
                print!(" {:7.2} {:7.1}", summary.mean, summary.p99);
            }
            println!();
        }
    }
    Ok(())
}
