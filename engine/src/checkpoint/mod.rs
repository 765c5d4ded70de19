//! Checkpoints: files of a Hugging Face folder to one [`config::ModelConfig`], weights and text.
pub mod config;
