//! `relserve bench pml`: time to the first token of a prompt whose modules are cached, against a plain
//! prefill of the same tokens (Prompt Cache, section 5.2).
//!
//! Made-up documents are the modules of a schema; a prompt imports all and asks a short question. Both ways
//! run through the real scheduler and executor in turn, the plain one in a new scope each time, so that it
//! hits nothing. Their answers differ where the modules' not seeing each other matters: this measures time
//! alone.

use std::fmt::Write;

use base::{Nanos, Tokenizer};
use gateway::config::Config;
use ir::pml::{Layout, PmlError, PmlPrompt, Positions, Schema, Sectioned};

use super::BenchError;
use super::first_token::{First, FirstTokenHarness, document, median, ms, whole};

/// Modules of a prompt.
const MODULES: usize = 5;
/// What is new in it.
const QUESTION: &str = "Which of these documents says the most about the matter, and why?";

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Sizes {
    /// Tokens of the modules together, smallest first.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 3_000, 5_000])]
    tokens: Vec<usize>,
    /// How often each is run; medians count.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
}

/// A prompt both ways.
struct PromptCase {
    /// In sections: what computes its modules, and itself.
    encodings: Vec<Sectioned>,
    cached: Sectioned,
    /// The same tokens as one.
    plain: Sectioned,
    /// Tokens of its modules.
    modules: usize,
}

/// What was measured of a case.
#[derive(Clone, Debug, PartialEq)]
struct CaseLine {
    modules: usize,
    new: usize,
    /// Medians.
    plain: Nanos,
    cached: Nanos,
    /// Tokens computed, of the last round.
    plain_computed: u64,
    cached_computed: u64,
}

/// Measures the configured model; the table.
pub fn measure(config: &Config, sizes: &Sizes) -> Result<String, BenchError> {
    let mut harness = FirstTokenHarness::load(config)?;
    let mut text =
        format!("{:>8}{:>6}{:>12}{:>12}{:>8}\n", "modules", "new", "plain ms", "cached ms", "ratio");
    for tokens in &sizes.tokens {
        text += &match case(&harness, *tokens) {
            Ok(case) => line(&mut harness, &case, sizes.rounds)?.text(),
            Err(error) => format!("{tokens:>8}  does not fit: {}\n", error.reason),
        };
    }
    Ok(text)
}

impl CaseLine {
    fn text(&self) -> String {
        let ratio = self.plain.0 as f64 / self.cached.0.max(1) as f64;
        format!(
            "{:>8}{:>6}{:>12.2}{:>12.2}{ratio:>7.1}x\n",
            self.modules,
            self.new,
            ms(self.plain),
            ms(self.cached)
        )
    }
}

/// A prompt of modules with about as many tokens.
fn case(harness: &FirstTokenHarness, tokens: usize) -> Result<PromptCase, PmlError> {
    let text: &dyn Tokenizer = &*harness.engine.text;
    let (mut schema, mut imports) = (String::new(), String::new());
    for module in 0..MODULES {
        let document = document(text, tokens / MODULES, module);
        let _ = write!(schema, "<module name=\"d{module}\">{document}</module>");
        let _ = write!(imports, "<d{module}/>");
    }
    let schema = Schema::parse(&format!("<schema name=\"s\">{schema}</schema>"))?;
    let context = harness.context();
    let positions =
        Positions { length_max: context.saturating_sub(1), can_shift: true, bounds_arguments: true };
    let layout = Layout::new(&schema, text, Err("no messages here"), positions)?;
    let prompt = PmlPrompt::parse(&format!("<prompt schema=\"s\">{imports}{QUESTION}</prompt>"))?;
    let assembly = layout.assemble(&prompt, text, Err("no messages here"), context - 1)?;
    let cached = assembly.sections(&layout);
    // Both ways in memory at a time, and the modules with them.
    let room = harness.room();
    if 2 * cached.prompt.len() + 32 * cached.sections.len() > room {
        let reason = format!("the KV pool has {room} tokens, two prompts of {} are run", cached.prompt.len());
        return Err(PmlError { place: prompt.place, reason });
    }
    let modules = layout.units.iter().flat_map(|unit| &unit.pieces).map(|piece| piece.tokens.len()).sum();
    let encodings = layout.encodings().into_iter().map(|encoding| encoding.sectioned).collect();
    Ok(PromptCase { encodings, plain: whole(cached.prompt.clone()), cached, modules })
}

/// Runs a case both ways in turn.
fn line(harness: &mut FirstTokenHarness, case: &PromptCase, rounds: u64) -> Result<CaseLine, BenchError> {
    // All cached runs share one scope; the plain ones never do.
    let scope = harness.scope();
    for encoding in &case.encodings {
        harness.first_token(encoding, scope)?;
    }
    let (mut plain, mut cached) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let fresh = harness.scope();
        plain.push(harness.first_token(&case.plain, fresh)?);
        cached.push(harness.first_token(&case.cached, scope)?);
    }
    let computed = |runs: &[First]| runs.last().map_or(0, |run| run.usage.computed.0);
    Ok(CaseLine {
        modules: case.modules,
        new: case.plain.prompt.len() - case.modules,
        plain_computed: computed(&plain),
        cached_computed: computed(&cached),
        plain: median(&plain),
        cached: median(&cached),
    })
}

#[cfg(test)]
mod tests {
    use scheduler::CostModel;
    use serving::load;

    use super::*;

    #[test]
    fn what_is_cached_is_not_computed_and_what_is_plain_is() {
        let config = Config::default();
        let engine = load::load(config.backend()).expect("the demo model loads");
        let mut harness =
            FirstTokenHarness::new(engine, &config.scheduler, CostModel::default()).expect("valid settings");
        for tokens in [100, 300] {
            let case = case(&harness, tokens).expect("it fits");
            let line = line(&mut harness, &case, 3).expect("steps succeed");
            assert!((tokens..tokens + 5 * 8).contains(&line.modules), "{line:?}");
            assert_eq!(line.plain_computed, (line.modules + line.new) as u64);
            assert_eq!(line.cached_computed, line.new as u64);
        }
        assert!(case(&harness, 5_000).is_err(), "beyond its context");
    }

    #[test]
    fn the_table_gives_the_ratio() {
        let line = CaseLine {
            modules: 3_000,
            new: 14,
            plain: Nanos(900_000_000),
            cached: Nanos(20_000_000),
            plain_computed: 3_014,
            cached_computed: 14,
        };
        assert_eq!(line.text(), "    3000    14      900.00       20.00   45.0x\n");
    }
}
