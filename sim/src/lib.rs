//! A world in one thread: virtual time, an executor made of a cost model, faults, traces.
//!
//! The scheduler in here is the one that serves; only time and the model are made up. It must not know
//! HTTP or tensors, and it never reads a clock: a replay is a function of its trace and configuration.

pub mod ablation;
pub mod chaos;
pub mod comparison;
pub mod draws;
pub mod executor;
pub mod faults;
pub mod first_rows;
pub mod fitted;
pub mod fleet;
pub mod isolation;
pub mod machine;
pub mod paper;
pub mod progress;
pub mod record;
pub mod regret;
pub mod replay;
pub mod replay_config;
pub mod report;
pub mod roofline;
pub mod settings;
pub mod step_faults;
pub mod summary;
pub mod table;
pub mod trace;
pub mod watch;
pub mod world;

pub use comparison::Comparison;
pub use executor::SimExecutor;
pub use faults::{Fault, FaultError, FaultPlan};
pub use fitted::{Fitted, MachineError};
pub use machine::Machine;
pub use paper::{Dataset, Offline, Workload, generate};
pub use progress::{ProgressStep, RelQueryProgress};
pub use record::{Finished, Iteration, Members};
pub use replay::auto;
pub use replay::{Replay, SimError, replay, replay_lowered, replay_watched, replay_with_faults};
pub use replay_config::ReplayConfig;
pub use report::{reference_name, results};
pub use scheduler::{Phase, Policy};
pub use settings::{SettingError, policies, set};
pub use summary::{IterationCounts, LatencySummary};
pub use table::PolicyTable;
pub use trace::{Lowered, Trace, TraceError, TraceRelQuery, TraceTemplate};
pub use watch::{Mark, Unwatched, Watcher};
pub use world::World;
