//! The one crate with tensors: it loads a checkpoint and runs batch plans on it.
//!
//! It knows nothing of relQueries, tenants or HTTP: a [`base::BatchPlan`] comes in, a
//! [`base::StepOutcome`] goes out.

mod adjust;
mod attention;
pub mod checkpoint;
pub mod checkpoint_reader;
pub mod compare;
mod constraint;
pub mod decoder;
pub mod deviation;
pub mod device;
pub mod executor;
pub mod hub;
mod load;
pub mod memory;
pub mod parallel;
pub mod pool;
mod rope;
mod sample;
mod settings;
mod stop;
pub mod text;

pub use checkpoint::generation::GenerationDefaults;
pub use checkpoint_reader::{CheckpointText, ModelFiles};
pub use constraint::Constraints;
pub use executor::LocalExecutor;
pub use load::{Engine, EngineError, ModelInfo, load_bytes, load_dir};
pub use settings::{Device, EngineConfig, Keep, KvFormat, Quantize};
pub use text::ModelText;
