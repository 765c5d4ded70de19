//! Writes a checkpoint with random weights, to run the server and measure it where no trained one of the size
//! is at hand: `cargo run --release -p engine --example checkpoint -- llama-125m DIR`.
//!
//! Its answers mean nothing; what its steps cost does. The same name gives the same bytes on every machine.
//! Where the target ends in `.gguf`, one file with the same weights is written, for servers that read only
//! that: its matrices in the shape's type, or in the format that follows the target, `BF16` or `Q8_0`; in
//! `.json`, its configuration alone.

use std::path::Path;
use std::process::ExitCode;

use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::ggml::BlockFormat;
use engine::checkpoint::synthetic::Synthetic;

/// The shapes by name: the smallest is for trying the command out.
fn named(name: &str) -> Option<Synthetic> {
    match name {
        "llama-tiny" => Some(Synthetic::tiny(Family::Llama, 1)),
        "mistral-tiny" => Some(Synthetic::tiny(Family::Mistral, 1)),
        "qwen2-tiny" => Some(Synthetic::tiny(Family::Qwen2, 1)),
        "qwen3-tiny" => Some(Synthetic::tiny(Family::Qwen3, 1)),
        "opt-tiny" => Some(Synthetic::tiny(Family::Opt, 1)),
        "mpt-tiny" => Some(Synthetic::tiny(Family::Mpt, 1)),
        "falcon-tiny" => Some(Synthetic::tiny(Family::Falcon, 1)),
        "gemma3-tiny" => Some(Synthetic::tiny(Family::Gemma3, 1)),
        "llama-125m" => Some(Synthetic::llama_125m(Dtype::F32, 1)),
        "llama-60m-bf16" => Some(Synthetic::llama_60m(Dtype::Bf16, 1)),
        "llama-125m-bf16" => Some(Synthetic::llama_125m(Dtype::Bf16, 1)),
        // The same with room for many documents: positions are rotated, so that nothing else depends on their
        // number.
        "llama-125m-long" => {
            let mut long = Synthetic::llama_125m(Dtype::Bf16, 1);
            long.config.context_max = 131_072;
            Some(long)
        }
        "qwen2.5-0.5b" => Some(Synthetic::qwen2_5_05b(Dtype::Bf16, 1)),
        "qwen2.5-7b" => Some(Synthetic::qwen2_5_7b(Dtype::Bf16, 1)),
        "llama-3-8b" => Some(Synthetic::llama_3_8b(Dtype::Bf16, 1)),
        _ => None,
    }
}

const USAGE: &str = "usage: checkpoint SHAPE DIR|FILE.json|FILE.gguf [BF16|Q8_0], where SHAPE is llama-3-8b, qwen2.5-7b, qwen2.5-0.5b, \
                     llama-60m-bf16, llama-125m, llama-125m-bf16, llama-125m-long, or llama-tiny and likewise of mistral, qwen2, qwen3, opt, mpt, falcon and gemma3";

/// Writes the checkpoint that the arguments name.
fn write(arguments: &[String]) -> Result<(), String> {
    let (name, target, format) = match arguments {
        [name, target] => (name, Path::new(target), None),
        [name, target, format] => (name, Path::new(target), Some(format.as_str())),
        _ => return Err(USAGE.into()),
    };
    let model = named(name).ok_or_else(|| format!("there is no shape `{name}`"))?;
    let unwritten = |error: std::io::Error| format!("{}: {error}", target.display());
    if target.extension().is_some_and(|extension| extension == "gguf") {
        let format = match (format, model.dtype) {
            (Some("BF16"), _) | (None, Dtype::Bf16) => BlockFormat::Bf16,
            (Some("Q8_0"), _) => BlockFormat::Q8_0,
            (None, Dtype::F32) => BlockFormat::F32,
            (None, Dtype::F16) => BlockFormat::F16,
            (Some(other), _) => return Err(format!("the format must be BF16 or Q8_0, not `{other}`")),
        };
        let file = model.gguf(format).map_err(|error| error.to_string())?;
        return std::fs::write(target, file.finish()).map_err(unwritten);
    }
    if target.extension().is_some_and(|extension| extension == "json") && format.is_none() {
        return std::fs::write(target, model.config_json()).map_err(unwritten);
    }
    if format.is_some() {
        return Err("a format goes with a target that ends in .gguf".into());
    }
    std::fs::create_dir_all(target).map_err(unwritten)?;
    model.write(target).map_err(|error| error.to_string())
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
