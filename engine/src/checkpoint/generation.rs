//! generation_config.json: how the makers of a model mean it to be sampled, and what ends an answer.

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fields::{CONFIG_FILE, Fields, parse_object};

/// The file's name, for errors.
const FILE: &str = "generation_config.json";

/// Sampling where a request says nothing. `None`: the file says nothing either.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Divisor of the logits; 0 is greedy.
    pub temperature: Option<f32>,
    /// Mass of the likeliest tokens to choose among.
    pub top_p: Option<f32>,
    /// Number of the likeliest tokens to choose among.
    pub top_k: Option<u32>,
}

/// Token ids that the JSON files name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// What starts a prompt, if anything does.
    pub begin: Option<u32>,
    /// What ends an answer, each id once, in order.
    pub ends: Vec<u32>,
}

/// Reads both files that name special tokens and sampling defaults.
pub fn read_generation(
    config: &str,
    generation_config: Option<&str>,
) -> Result<(GenerationDefaults, SpecialIds), CheckpointError> {
    let value = parse_object(CONFIG_FILE, config)?;
    let fields = Fields::of(CONFIG_FILE, "", &value).expect("parse_object gives an object");
    let mut ids = SpecialIds { begin: first(&fields)?, ends: fields.token_ids("eos_token_id")? };
    let mut defaults = GenerationDefaults::default();
    if let Some(text) = generation_config {
        let value = parse_object(FILE, text)?;
        let fields = Fields::of(FILE, "", &value).expect("parse_object gives an object");
        ids.begin = first(&fields)?.or(ids.begin);
        ids.ends.extend(fields.token_ids("eos_token_id")?);
        defaults = sampling(&fields)?;
    }
    ids.ends.sort_unstable();
    ids.ends.dedup();
    Ok((defaults, ids))
}

/// The token that starts a prompt; a list of them counts as none.
fn first(fields: &Fields<'_>) -> Result<Option<u32>, CheckpointError> {
    let ids = fields.token_ids("bos_token_id")?;
    Ok(if let [id] = ids[..] { Some(id) } else { None })
}

/// Sampling fields; `do_sample: false` is greedy whatever the others say.
fn sampling(fields: &Fields<'_>) -> Result<GenerationDefaults, CheckpointError> {
    if fields.flag("do_sample")? == Some(false) {
        return Ok(GenerationDefaults { temperature: Some(0.0), top_p: None, top_k: None });
    }
    let number = |field: &str| -> Result<Option<f32>, CheckpointError> {
        let Some(value) = fields.get(field) else { return Ok(None) };
        match value.as_f64().map(|number| number as f32) {
            Some(number) if number >= 0.0 && number.is_finite() => Ok(Some(number)),
            _ => Err(fields.error(field, format!("must be a number from 0, found {value}"))),
        }
    };
    let top_k = match number("top_k")? {
        Some(top_k) if top_k >= 1.0 => Some(top_k as u32),
        Some(_) | None => None, // 0 means all tokens
    };
    Ok(GenerationDefaults {
        temperature: number("temperature")?,
        top_p: number("top_p")?.filter(|top_p| *top_p > 0.0 && *top_p < 1.0),
        top_k,
    })
}
