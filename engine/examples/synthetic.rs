//! Writes a checkpoint with random weights and the shape of a Llama of 125 million parameters: an engine whose
//! steps take as long as a real one's, for measuring schedulers and machines where no model can be fetched.
//!
//! ```text
//! cargo run --release --package engine --example synthetic -- DIR [f32|bf16]
//! ```

use std::path::Path;
use std::process::ExitCode;

use engine::checkpoint::config::Family;
use engine::checkpoint::{Dtype, Synthetic};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (dir, dtype) = (words.next(), words.next());
    let dtype = match dtype.as_deref() {
        None | Some("f32") => Dtype::F32,
        Some("bf16") => Dtype::Bf16,
        Some(other) => return fail(&format!("`{other}` is neither f32 nor bf16")),
    };
    let Some(dir) = dir else { return fail("usage: synthetic DIR [f32|bf16]") };
    let written = std::fs::create_dir_all(&dir)
        .map_err(|error| error.to_string())
        .and_then(|()| model(dtype).write(Path::new(&dir)).map_err(|error| error.to_string()));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{dir}: {error}")),
    }
}

/// The same shape as the bench of the engine's steps.
fn model(dtype: Dtype) -> Synthetic {
    let mut model = Synthetic { dtype, ..Synthetic::tiny(Family::Llama, 1) };
    let config = &mut model.config;
    (config.vocab, config.hidden, config.embedding, config.intermediate) = (32_000, 768, 768, 2_048);
    (config.layers, config.heads, config.kv_heads, config.head_dim) = (12, 12, 12, 64);
    config.context_max = 4_096;
    model
}

fn fail(reason: &str) -> ExitCode {
    eprintln!("synthetic: {reason}");
    ExitCode::FAILURE
}
