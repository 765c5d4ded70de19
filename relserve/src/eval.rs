//! `relserve eval quant`: what keeping weights, or keys and values, in fewer bits does to a model's answers.
//!
//! The checkpoint is loaded in single precision and once more per format; the reference answers the prompts
//! and every format is asked for the same distributions. No figure is judged here.

pub mod functions;
pub mod quality;
pub mod spans;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use base::{ChatTemplate as _, Role, TokenId, Tokenizer as _};
use engine::checkpoint::Dtype;
use engine::compare::{CompareError, Comparison, Prompt, compare};
use engine::text::TokenText as _;
use engine::{Device, Engine, Keep, KvFormat, ModelText, Quantize};
use gateway::config::Config;
use serving::load::{self, LoadError};

/// Single precision throughout.
const REFERENCE: Keep = Keep { dtype: Some(Dtype::F32), quantize: None, kv: Some(KvFormat::F32) };

/// What is compared with it: weights, with keys and values as they then are, and keys and values alone.
const FORMATS: [(&str, Keep); 6] = [
    ("bf16", Keep { dtype: Some(Dtype::Bf16), quantize: None, kv: None }),
    ("q8", Keep { dtype: None, quantize: Some(Quantize::Q8), kv: None }),
    ("q8-wide", Keep { dtype: None, quantize: Some(Quantize::Q8Wide), kv: None }),
    ("q4", Keep { dtype: None, quantize: Some(Quantize::Q4), kv: None }),
    ("kv bf16", Keep { kv: Some(KvFormat::Bf16), ..REFERENCE }),
    ("kv q8", Keep { kv: Some(KvFormat::Q8), ..REFERENCE }),
];

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// The model.
    #[error(transparent)]
    Backend(#[from] LoadError),
    /// The prompts, or a step.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// Measuring how long prompts take.
    #[error("{0}")]
    Timing(String),
    /// The file of prompts.
    #[error("cannot read {}: {error}", file.display())]
    File { file: PathBuf, error: std::io::Error },
    /// A prompt that cannot be put to the model.
    #[error("{0}")]
    Item(String),
    /// A file without prompts.
    #[error("there is no prompt")]
    NoPrompt,
    /// The chat template.
    #[error("the chat template does not take a prompt: {0}")]
    Template(#[from] base::TextError),
}

/// A format beside single precision.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatLine {
    /// Its name.
    pub format: &'static str,
    /// Bytes of weights that a step reads, per byte in single precision.
    pub size: f64,
    /// How far its answers are.
    pub comparison: Comparison,
}

/// What was measured, and the formats that were not, each with why: a card that does not multiply one has the others.
#[derive(Debug, Default)]
pub struct FormatTable {
    pub lines: Vec<FormatLine>,
    pub failed: Vec<(&'static str, EvalError)>,
}

/// The prompts of a file, one a line; without one those of the demo model's own tests.
pub fn prompts(file: Option<&Path>) -> Result<Vec<String>, EvalError> {
    let prompts: Vec<String> = match file {
        Some(file) => {
            let read = std::fs::read_to_string(file);
            let text = read.map_err(|error| EvalError::File { file: file.to_owned(), error })?;
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
        }
        None => serving::demo::prompts(),
    };
    if prompts.is_empty() { Err(EvalError::NoPrompt) } else { Ok(prompts) }
}

/// The same where GPUs are named: keys and values are as weights that are not in fewer bits, or alone in eight. Other weights
/// are bf16 in all of them: in f32, as the reference has them, a model may have no room there.
const FORMATS_ON_GPUS: [(&str, Keep); 5] = [
    ("bf16", Keep { dtype: Some(Dtype::Bf16), quantize: None, kv: None }),
    ("fp8", Keep { dtype: Some(Dtype::Bf16), quantize: Some(Quantize::Fp8), kv: None }),
    ("q4", Keep { dtype: Some(Dtype::Bf16), quantize: Some(Quantize::Q4), kv: None }),
    ("kv q8", Keep { dtype: Some(Dtype::Bf16), quantize: None, kv: Some(KvFormat::Q8) }),
    ("kv fp8", Keep { dtype: Some(Dtype::Bf16), quantize: None, kv: Some(KvFormat::Fp8) }),
];

/// Compares every format of the configured model with single precision, which the processor computes.
pub fn measure(config: &Config, prompts: &[String]) -> Result<FormatTable, EvalError> {
    match &config.engine.device {
        gpus @ Device::Cuda(_) => compare_formats(config, prompts, (&FORMATS_ON_GPUS[..], gpus)),
        Device::Auto | Device::Cpu => compare_formats(config, prompts, (&FORMATS[..], &Device::Cpu)),
    }
}

fn compare_formats(
    config: &Config,
    prompts: &[String],
    (formats, device): (&[(&'static str, Keep)], &Device),
) -> Result<FormatTable, EvalError> {
    let load = |keep: Keep, device: &Device| -> Result<Engine, LoadError> {
        let mut config = config.clone();
        config.engine.device = device.clone();
        (config.engine.dtype, config.engine.quantize, config.engine.kv) =
            (keep.dtype, keep.quantize, keep.kv);
        config.engine.sequences_max = 1; // its pool is not used
        load::load(config.backend())
    };
    let reference = load(REFERENCE, &Device::Cpu)?;
    let text = &reference.text;
    let pair = |prompt: &String| {
        let prompt = Prompt::whole(tokens(text, prompt)?);
        Ok((prompt.clone(), prompt))
    };
    let prompts = prompts.iter().map(pair).collect::<Result<Vec<_>, base::TextError>>()?;
    let ids = (text.ends(), text.ids_end() as usize);
    let line = |format: &'static str, keep: Keep| -> Result<FormatLine, EvalError> {
        let engine = load(keep, device)?;
        let (one, other) = (reference.executor.model(), engine.executor.model());
        let comparison = compare((one, other), &prompts, ids)?;
        Ok(FormatLine { format, size: other.step_bytes() as f64 / one.step_bytes() as f64, comparison })
    };
    let mut table = FormatTable::default();
    for &(format, keep) in formats {
        match line(format, keep) {
            Ok(line) => table.lines.push(line),
            Err(error) => table.failed.push((format, error)),
        }
    }
    if table.lines.is_empty() && !table.failed.is_empty() {
        return Err(table.failed.swap_remove(0).1); // what all have in common: a prompt that is too long
    }
    Ok(table)
}

/// A prompt as a user's turn, or plain where the model has no chat template.
pub fn tokens(text: &ModelText, prompt: &str) -> Result<Vec<TokenId>, base::TextError> {
    if !text.has_chat_template() {
        return Ok(text.encode_data(prompt));
    }
    Ok(text.encode_rendered(&text.render(&[(Role::User, prompt)])?))
}

/// The table, for people.
pub fn text(prompts: usize, FormatTable { lines, failed }: &FormatTable) -> String {
    let positions = lines.first().map_or(0, |line| line.comparison.positions);
    let mut text = format!(
        "{prompts} prompts, {positions} answer tokens, against weights, keys and values in f32 (KL: divergence of the next \
         token's distribution, in nats)\n{:<8}{:>12}{:>16}{:>14}{:>14}\n",
        "weights", "size", "same token", "mean KL", "max KL"
    );
    for FormatLine { format, size, comparison } in lines {
        let (percent, mean) = (comparison.agreement().map(|share| 100.0 * share), comparison.mean());
        let shown = |value: Option<f64>, places: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.places$}"))
        };
        let _ = writeln!(
            text,
            "{format:<8}{:>10.1} %{:>14} %{:>14}{:>14.6}",
            100.0 * size,
            shown(percent, 2),
            shown(mean, 6),
            comparison.divergence_max
        );
    }
    for (format, error) in failed {
        let _ = writeln!(text, "{format:<8} not measured: {error}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_model_in_fewer_bits_answers_nearly_as_in_single_precision() {
        let prompts = prompts(None).expect("they are shipped");
        assert!(prompts.len() >= 20);
        let found = measure(&Config::default(), &prompts).expect("steps succeed");
        let (lines, table) = (&found.lines, text(prompts.len(), &found));
        assert!(lines.len() == FORMATS.len() && found.failed.is_empty(), "{table}");
        for (line, format) in lines.iter().zip(["bf16", "q8", "q8-wide", "q4", "kv bf16", "kv q8"]) {
            let Comparison { positions, divergence_max, .. } = line.comparison;
            let (agreement, mean) = (line.comparison.agreement(), line.comparison.mean());
            assert_eq!(line.format, format);
            assert!(positions as usize >= 2 * prompts.len(), "{table}");
            // Found: 0.00006 and 0.0012 in eight bits, 0.002 and 0.02 in four; a wrong scale or sign is thousands of
            // times that. Wider groups may be some times further off than others of eight bits.
            let (same, mean_max, most) = match format {
                "q4" => (0.9, 0.01, 0.1),
                "q8-wide" => (0.95, 0.001, 0.02),
                _ => (0.98, 0.0003, 0.006),
            };
            assert!(agreement.is_some_and(|share| share >= same), "{table}");
            assert!(mean.is_some_and(|mean| mean < mean_max) && divergence_max < most, "{table}");
        }
        assert!(lines[1].size < 0.6 * lines[0].size && lines[2].size < 0.6 * lines[0].size, "{table}");
        // Wider groups have fewer scales.
        assert!(lines[2].size < lines[1].size, "{table}");
    }

    #[test]
    fn a_format_that_is_refused_is_named_beside_those_that_are_measured() {
        let prompts = &prompts(None).expect("they are shipped")[..2];
        let processor = (&FORMATS_ON_GPUS[..], &Device::Cpu); // which keeps nothing in floats of eight bits
        let table = compare_formats(&Config::default(), prompts, processor).expect("the reference is there");
        let measured: Vec<&str> = table.lines.iter().map(|line| line.format).collect();
        assert_eq!(measured, ["bf16", "q4", "kv q8"]);
        let failed: Vec<&str> = table.failed.iter().map(|(format, _)| *format).collect();
        assert_eq!(failed, ["fp8", "kv fp8"]);
        let text = text(prompts.len(), &table);
        for line in ["\nfp8      not measured: ", "\nkv fp8   not measured: "] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn weights_on_gpus_are_no_wider_than_bf16() {
        assert!(FORMATS_ON_GPUS.iter().all(|(_, keep)| keep.dtype == Some(Dtype::Bf16)));
    }

    #[test]
    fn the_table_has_a_line_per_format() {
        let comparison =
            Comparison { positions: 40, agreeing: 39, divergence: 0.05, divergence_max: 0.012_345_6 };
        let line = FormatLine { format: "q8", size: 0.265_7, comparison };
        let none = FormatLine { format: "bf16", size: 0.5, comparison: Comparison::default() };
        let failed = vec![("fp8", EvalError::Item("it is refused".to_owned()))];
        insta::assert_snapshot!(text(7, &FormatTable { lines: vec![line, none], failed }), @r"
        7 prompts, 40 answer tokens, against weights, keys and values in f32 (KL: divergence of the next token's distribution, in nats)
        weights         size      same token       mean KL        max KL
        q8            26.6 %         97.50 %      0.001250      0.012346
        bf16          50.0 %             - %             -      0.000000
        fp8      not measured: it is refused
        ");
    }

    #[test]
    fn a_file_gives_a_prompt_a_line() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("prompts.txt");
        std::fs::write(&file, "one\n\n  two words \n").expect("it can be written");
        assert_eq!(prompts(Some(&file)).expect("two"), ["one", "two words"]);
        std::fs::write(&file, "\n").expect("it can be written");
        assert_eq!(prompts(Some(&file)).expect_err("none").to_string(), "there is no prompt");
        let error = prompts(Some(&folder.path().join("none"))).expect_err("it is not there").to_string();
        assert!(error.starts_with("cannot read ") && error.contains("none"), "{error}");
    }
}
