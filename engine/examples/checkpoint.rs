//! Writes a checkpoint with random weights, to run the server and measure it where no trained one of the size is at
//! hand: `cargo run --release -p engine --example checkpoint -- llama-125m DIR`.
//!
//! Its answers mean nothing; what its steps cost does. The same name gives the same bytes on every machine.

use std::path::Path;
use std::process::ExitCode;

use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;

/// The shapes by name: the smallest is for trying the command out.
fn named(name: &str) -> Option<Synthetic> {
    match name {
        "llama-tiny" => Some(Synthetic::tiny(Family::Llama, 1)),
        "llama-125m" => Some(Synthetic::llama_125m(Dtype::F32, 1)),
        "llama-125m-bf16" => Some(Synthetic::llama_125m(Dtype::Bf16, 1)),
        "qwen2.5-0.5b" => Some(Synthetic::qwen2_5_05b(Dtype::Bf16, 1)),
        _ => None,
    }
}

/// Writes the checkpoint that the arguments name.
fn write(arguments: &[String]) -> Result<(), String> {
    let [name, folder] = arguments else {
        return Err("usage: checkpoint qwen2.5-0.5b|llama-125m-bf16|llama-125m|llama-tiny DIR".into());
    };
    let model = named(name).ok_or_else(|| format!("there is no shape `{name}`"))?;
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    model.write(folder).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match write(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("checkpoint: {reason}");
            ExitCode::FAILURE
        }
    }
}
