//! A world in one thread: virtual time, an executor made of a cost model, faults, traces.
//!
//! The scheduler in here is the one that serves; only time and the model are made up. It must not know
//! HTTP or tensors, and it never reads a clock: a replay is a function of its trace and configuration.

pub mod executor;
pub mod replay;
pub mod report;
pub mod summary;
pub mod trace;
pub mod workload;
pub mod world;

pub use executor::SimExecutor;
pub use replay::{Replay, ReplayConfig, SimError, replay};
pub use report::results;
pub use summary::{Counts, Iteration, Summary};
pub use trace::{Trace, TraceError};
pub use workload::{Shape, paper_like};
pub use world::{Finished, World};
