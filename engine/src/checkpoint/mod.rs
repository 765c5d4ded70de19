//! Checkpoints: files of a Hugging Face folder to one [`config::ModelConfig`], weights and text.
//!
//! It reads and checks; it must not know how a decoder lays weights out or computes with them.

pub mod config;
pub mod error;
pub mod names;
pub mod weights;

pub use config::ModelConfig;
pub use error::CheckpointError;
pub use weights::{Dtype, RawTensor, WeightSource};
