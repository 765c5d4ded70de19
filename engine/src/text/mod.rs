//! Text in and out of tokens: the checkpoint's tokenizer, its chat template, incremental decoding.
//!
//! Nothing here knows of weights, devices or schedules.

mod decode;
mod encode;
#[cfg(test)]
mod ending_tests;
#[cfg(test)]
mod endless_tests;
mod incremental;
mod info;
#[cfg(test)]
mod join_tests;
mod marks;
#[cfg(test)]
mod model_tests;
mod model_text;
mod python;
mod stretches;
mod strftime;
mod template;
mod words;

pub use incremental::{DecodeState, TokenText};
pub use model_text::{ModelText, TextFiles};
