//! Real processes under load and faults, a small share of what `cargo xtask chaos` does.

use std::path::PathBuf;

use loadgen::chaos::{Chaos, FaultKind, Step, chaos};

/// Steps of the plan, and finished requests of a step: faults come and go with these, not with time.
const STEPS: u32 = 14;
const REQUESTS: u64 = 4;
/// Of this seed seven faults come, each kind among them, and some at once: one gateway's clock is a quarter of an hour
/// ahead for a while, later the other's two hours behind.
const SEED: u64 = 225;
/// What loses most: processes and the database that end without a word, and writes whose confirmation is lost; and what
/// could have work taken away from who does it.
const KINDS: [FaultKind; 5] = [
    FaultKind::KillGateway,
    FaultKind::KillReplica,
    FaultKind::RestartDatabase,
    FaultKind::LoseDatabaseReplies,
    FaultKind::JumpClock,
];

#[actix_web::test]
async fn gateways_replicas_and_a_database_that_fail_under_load_keep_every_promise() {
    let asked = Chaos {
        program: PathBuf::from(env!("CARGO_BIN_EXE_relserve")),
        seed: SEED,
        steps: STEPS,
        step: Step::Requests(REQUESTS),
        clients: 4,
        kinds: KINDS.to_vec(),
        dir: None,
    };
    let Some(told) = chaos(&asked).await.unwrap() else {
        eprintln!("skipped: no Postgres is installed");
        return;
    };
    eprintln!("{}", told.text());
    for kind in KINDS {
        let came = told.faults.iter().any(|fault| fault.kind == kind.name());
        let is_left_out = told.left_out.iter().any(|(name, _)| *name == kind.name());
        assert!(came || is_left_out, "{kind:?}: {}", told.text());
    }
    assert!(told.is_sound(), "{}", told.text());
}
