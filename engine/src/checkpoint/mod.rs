//! Checkpoints: files of a Hugging Face folder to one [`config::ModelConfig`], weights and text.
//!
//! It reads and checks; it must not know how a decoder lays weights out or computes with them.

pub(crate) mod alibi;
pub mod config;
pub mod dtype;
pub mod error;
pub(crate) mod fields;
pub mod fused;
pub mod generation;
pub mod ggml;
pub mod gguf;
pub mod names;
pub mod packed;
pub mod read_config;
pub(crate) mod read_falcon;
pub(crate) mod read_gemma;
pub(crate) mod read_mpt;
pub(crate) mod read_rope;
pub mod safetensors;
pub mod shapes;
pub mod synthetic;
pub mod synthetic_text;
pub mod weights;

pub use config::ModelConfig;
pub use dtype::Dtype;
pub use error::CheckpointError;
pub use fused::Unfused;
pub use gguf::Gguf;
pub use packed::{PackedForm, PackedWeights};
pub use read_config::read_config;
pub use safetensors::Safetensors;
pub use synthetic::Synthetic;
pub use weights::{BlockMatrix, RawTensor, WeightSource};

#[cfg(test)]
mod tests;
