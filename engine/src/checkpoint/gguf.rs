//! GGUF: one file with a model's shape, its tokenizer and its weights.
//!
//! The layout is that of ggml's `gguf.md`, versions 2 and 3, little endian. A file is mapped; nothing is
//! allocated by a count before the bytes that it promises are known to be there. [`Gguf`] must not know which
//! metadata or tensors a model needs: [`read_config`] and [`texts`] do, and [`GgufWeights`] knows what they
//! are called.

mod config;
pub mod convert;
mod families;
mod file;
mod keys;
mod names;
mod pieces;
mod read;
mod text;
mod values;
mod weights;
pub mod write;

pub use config::{read_config, read_defaults};
pub use file::Gguf;
pub(crate) use pieces::is_white_space;
pub use text::{GgufTexts, texts};
pub use values::{List, MetaValue};
pub use weights::GgufWeights;

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod tests;
