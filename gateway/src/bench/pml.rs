//! `relserve bench pml`: time to the first token of a prompt whose modules are cached, against a plain prefill of the same
//! tokens (Prompt Cache, section 5.2).
//!
//! Made-up documents are the modules of a schema; a prompt imports all and asks a short question. Both ways run through
//! the real scheduler and executor in turn, the plain one in a new scope each time, so that it hits nothing. Their
//! answers differ where the modules' not seeing each other matters: this measures time alone.

use std::fmt::Write;
use std::sync::Arc;

use base::{
    Executor as _, Generation, Nanos, RelQueryId, Section, ServiceClass, Span, SpanKind, Submission,
    TenantId, TokenCount, TokenId, Tokenizer, WorkItem,
};
use engine::Engine;
use ir::pml::{Layout, PmlError, Positions, Prompt, Schema, Sectioned};
use scheduler::{CostModel, Event, Scheduler, SchedulerConfig, Speculation, Usage};

use super::BenchError;
use crate::clock::Clock;
use crate::config::Config;
use crate::{backend, calibrate};

/// Modules of a prompt.
const MODULES: usize = 5;
/// What is new in it.
const QUESTION: &str = "Which of these documents says the most about the matter, and why?";
/// Words of the documents.
const WORDS: [&str; 16] = [
    "river", "market", "engine", "winter", "paper", "garden", "signal", "copper", "letter", "harbour",
    "voice", "field", "mirror", "record", "bridge", "stone",
];

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
struct Case {
    /// In sections: what computes its modules, and itself.
    encodings: Vec<Sectioned>,
    cached: Sectioned,
    /// The same tokens as one.
    plain: Vec<TokenId>,
    /// Tokens of its modules.
    modules: usize,
}

/// What was measured of a case.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    modules: usize,
    new: usize,
    /// Medians.
    plain: Nanos,
    cached: Nanos,
    /// Tokens computed, of the last round.
    plain_computed: u64,
    cached_computed: u64,
}

/// An engine and what feeds it.
struct Lab {
    engine: Engine,
    scheduler: Scheduler,
    clock: Clock,
    next: u64,
}

/// Measures the configured model; the table.
pub fn measure(config: &Config, sizes: &Sizes) -> Result<String, BenchError> {
    let mut engine = backend::load(config)?;
    let model = backend::model_of(&engine, config, Clock::start());
    let cost = calibrate::measure(&mut engine.executor, &model)?.cost;
    // A fresh executor: the last one remembers rows whose numbers are used again.
    let mut lab = Lab::new(backend::load(config)?, &config.scheduler, cost)?;
    let mut text =
        format!("{:>8}{:>6}{:>12}{:>12}{:>8}\n", "modules", "new", "plain ms", "cached ms", "ratio");
    for tokens in &sizes.tokens {
        text += &match lab.case(*tokens) {
            Ok(case) => lab.line(&case, sizes.rounds)?.text(),
            Err(error) => format!("{tokens:>8}  does not fit: {}\n", error.reason),
        };
    }
    Ok(text)
}

impl Line {
    fn text(&self) -> String {
        let ms = |span: Nanos| span.0 as f64 / 1e6;
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

impl Lab {
    fn new(engine: Engine, settings: &SchedulerConfig, cost: CostModel) -> Result<Self, BenchError> {
        let config = SchedulerConfig {
            kv_blocks: engine.info.kv_blocks,
            block_tokens: engine.info.block_tokens,
            refit: false,
            speculation: Speculation::Off,
            ..settings.clone()
        };
        Ok(Self { scheduler: Scheduler::new(config, cost)?, engine, clock: Clock::start(), next: 0 })
    }

    /// A prompt of modules with about as many tokens.
    fn case(&self, tokens: usize) -> Result<Case, PmlError> {
        let text: &dyn Tokenizer = &*self.engine.text;
        let (mut schema, mut imports) = (String::new(), String::new());
        for module in 0..MODULES {
            let document = document(text, tokens / MODULES, module);
            let _ = write!(schema, "<module name=\"d{module}\">{document}</module>");
            let _ = write!(imports, "<d{module}/>");
        }
        let schema = Schema::parse(&format!("<schema name=\"s\">{schema}</schema>"))?;
        let context = u32::try_from(self.engine.info.context_max.0).unwrap_or(u32::MAX);
        let positions = Positions { length_max: context.saturating_sub(1), can_shift: true };
        let layout = Layout::new(&schema, text, Err("no messages here"), positions)?;
        let prompt = Prompt::parse(&format!("<prompt schema=\"s\">{imports}{QUESTION}</prompt>"))?;
        let assembly = layout.assemble(&prompt, text, Err("no messages here"), context - 1)?;
        let cached = assembly.sections(&layout);
        // Both ways in memory at a time, and the modules with them.
        let room = (self.engine.info.kv_blocks * self.engine.info.block_tokens) as usize;
        if 2 * cached.prompt.len() + 32 * cached.sections.len() > room {
            let reason =
                format!("the KV pool has {room} tokens, two prompts of {} are run", cached.prompt.len());
            return Err(PmlError { place: prompt.place, reason });
        }
        let modules = layout.units.iter().flat_map(|unit| &unit.pieces).map(|piece| piece.tokens.len()).sum();
        let encodings = layout.encodings().into_iter().map(|encoding| encoding.sectioned).collect();
        Ok(Case { encodings, plain: cached.prompt.clone(), cached, modules })
    }

    /// Runs a case both ways in turn.
    fn line(&mut self, case: &Case, rounds: u64) -> Result<Line, BenchError> {
        // All cached runs share one scope; the plain ones never do.
        let scope = u128::from(u64::MAX) + u128::from(self.next);
        for encoding in &case.encodings {
            self.first_token(&encoding.prompt, &encoding.sections, scope)?;
        }
        let (mut plain, mut cached) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let fresh = u128::from(self.next);
            plain.push(self.first_token(&case.plain, &[], fresh)?);
            cached.push(self.first_token(&case.cached.prompt, &case.cached.sections, scope)?);
        }
        let computed = |runs: &[(Nanos, Usage)]| runs.last().map_or(0, |(_, usage)| usage.computed.0);
        Ok(Line {
            modules: case.modules,
            new: case.plain.len() - case.modules,
            plain_computed: computed(&plain),
            cached_computed: computed(&cached),
            plain: median(plain),
            cached: median(cached),
        })
    }

    /// Time from the submission of a prompt to its first token.
    fn first_token(
        &mut self,
        prompt: &[TokenId],
        sections: &[Section],
        scope: u128,
    ) -> Result<(Nanos, Usage), BenchError> {
        self.next += 1;
        let generation = Generation { output_max: TokenCount(1), ignore_end: true, ..Generation::default() };
        let spans = [Span { kind: SpanKind::Template, tokens: TokenCount(prompt.len() as u64) }];
        let item = WorkItem {
            row: 0,
            prompt: prompt.into(),
            spans: spans.into(),
            sections: sections.into(),
            generation: Arc::new(generation),
            seed: 0,
        };
        let begin = self.clock.now();
        self.scheduler.submit(Submission {
            id: RelQueryId(self.next),
            tenant: TenantId(0),
            weight: 1_000,
            scope,
            class: ServiceClass::Interactive,
            arrival: begin,
            deadline: None,
            items: vec![item],
        })?;
        let mut usage = Usage::default();
        while let Some(plan) = self.scheduler.plan(self.clock.now()) {
            let outcome = self.engine.executor.step(&plan)?;
            for event in self.scheduler.apply(&outcome, self.clock.now()) {
                if let Event::RelQueryDone { usage: used, .. } = event {
                    usage = used;
                }
            }
        }
        Ok((self.clock.now().since(begin), usage))
    }
}

/// A document of about as many tokens, unlike those of other numbers.
fn document(text: &dyn Tokenizer, tokens: usize, number: usize) -> String {
    let mut document = format!("Document {number}:");
    let mut seed = number as u64;
    // Words are of several tokens: the count is taken anew where it may suffice.
    while text.encode_data(&document).len() < tokens {
        let length = text.encode_data(&document).len();
        for _ in 0..(tokens - length).div_ceil(8).max(1) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            document.push(' ');
            document.push_str(WORDS[(seed >> 60) as usize]);
        }
    }
    document
}

fn median(mut runs: Vec<(Nanos, Usage)>) -> Nanos {
    runs.sort_by_key(|(span, _)| *span);
    runs.get(runs.len() / 2).map_or(Nanos(0), |(span, _)| *span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cached_is_not_computed_and_what_is_plain_is() {
        let config = Config::default();
        let engine = backend::load(&config).expect("the demo model loads");
        let mut lab = Lab::new(engine, &config.scheduler, CostModel::default()).expect("valid settings");
        for tokens in [100, 300] {
            let case = lab.case(tokens).expect("it fits");
            let line = lab.line(&case, 3).expect("steps succeed");
            assert!((tokens..tokens + 5 * 8).contains(&line.modules), "{line:?}");
            assert_eq!(line.plain_computed, (line.modules + line.new) as u64);
            assert_eq!(line.cached_computed, line.new as u64);
        }
        assert!(lab.case(5_000).is_err(), "beyond its context");
    }

    #[test]
    fn the_table_gives_the_ratio() {
        let line = Line {
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
