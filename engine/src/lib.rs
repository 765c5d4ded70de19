//! The one crate with tensors: it loads a checkpoint and runs batch plans on it.
//!
//! It knows nothing of relQueries, tenants or HTTP: a [`base::BatchPlan`] comes in, a
//! [`base::StepOutcome`] goes out.

pub mod checkpoint;
pub mod hub;
pub mod opened;
pub mod text;
