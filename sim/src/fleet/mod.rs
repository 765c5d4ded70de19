//! Many replicas in virtual time, and the published benchmark of Dynamic Prefix Bucketing on them.
//!
//! A replica is the real scheduler with an executor made of a cost model ([`replica`]), or the same in counts
//! where that takes too long ([`counted`]); the [`world`] lets them run beside each other; the [`methods`]
//! decide which row goes where: naive and continuous batching, a global sort, and our prefix buckets before
//! our fleet. `docs/BUCKETS.md` has the results.

pub mod bench;
pub mod counted;
pub mod data;
pub mod l4;
pub mod method;
pub mod methods;
pub mod replay;
pub mod replica;
pub mod world;

pub use bench::{Bench, MethodKind};
pub use replay::{FleetMachine, FleetReplay, ReportedKv, replay_fleet, replay_fleet_lowered};
pub use world::{FleetOutcome, WorldError};
