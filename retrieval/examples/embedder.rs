//! Writes an embedding model with random weights, to try corpora out where no trained one is at hand:
//! `cargo run -p retrieval --example embedder -- DIR WORD...`.
//!
//! It tells texts apart by the words they share: those named have tokens of their own, others are spelt. The
//! same words give the same bytes on every machine.

use std::path::Path;
use std::process::ExitCode;

use retrieval::synthetic::Synthetic;

fn write(arguments: &[String]) -> Result<(), String> {
    let [folder, words @ ..] = arguments else { return Err("usage: embedder DIR [WORD...]".into()) };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let model = Synthetic { hidden: 128, positions: 512, ..Synthetic::tiny(&words, 1) };
    std::fs::create_dir_all(folder).map_err(|error| format!("{folder}: {error}"))?;
    model.write(Path::new(folder)).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match write(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
