//! Prompts through the real scheduler and executor, one relQuery after another: how long each waits for its
//! first token.

use std::sync::Arc;

use base::{
    Executor as _, Generation, Nanos, RelQueryId, ServiceClass, Span, SpanKind, Submission, TenantId, Time,
    TokenCount, TokenId, Tokenizer, WorkItem,
};
use engine::Engine;
use gateway::config::Config;
use ir::Sectioned;
use scheduler::{Event, Scheduler, SchedulerConfig, Usage};
use serving::clock::Clock;
use serving::{calibrate, load};

use super::{BenchError, measured};

/// Words of made-up documents.
const WORDS: [&str; 16] = [
    "river", "market", "engine", "winter", "paper", "garden", "signal", "copper", "letter", "harbour",
    "voice", "field", "mirror", "record", "bridge", "stone",
];

/// An engine and what feeds it.
pub(crate) struct FirstTokenHarness {
    pub(crate) engine: Engine,
    scheduler: Scheduler,
    clock: Clock,
    next: u64,
}

/// What a prompt took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct First {
    /// From its submission to its first token.
    pub(crate) time: Nanos,
    /// Its tokens.
    pub(crate) usage: Usage,
}

/// A row that generates.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) prompt: Sectioned,
    /// Its output tokens, ends of the model's own not counted.
    pub(super) output: u64,
    /// 0 is greedy.
    pub(super) temperature: f32,
    /// Of its draws.
    pub(super) seed: u64,
}

/// When rows of a relQuery end, from its submission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowEnds {
    /// The first that does.
    pub(super) first: Nanos,
    pub(super) last: Nanos,
    /// Steps behind the one that ended the first.
    pub(super) steps_behind: usize,
}

impl FirstTokenHarness {
    /// The configured model, with the cost of its steps measured.
    pub(super) fn load(config: &Config) -> Result<Self, BenchError> {
        let mut engine = load::load(config.backend())?;
        let model = load::model_of(&engine, config.backend(), Clock::start());
        let cost = calibrate::measure(&mut engine.executor, &model)?.cost;
        // A fresh executor: the last one remembers rows whose numbers are used again.
        Self::new(load::load(config.backend())?, &config.scheduler, cost)
    }

    /// An engine whose steps cost so much.
    pub(crate) fn new(
        engine: Engine,
        settings: &SchedulerConfig,
        cost: scheduler::CostModel,
    ) -> Result<Self, BenchError> {
        let scheduler = Scheduler::new(measured(&engine, settings), cost)?;
        Ok(Self { scheduler, engine, clock: Clock::start(), next: 0 })
    }

    /// A scope in which nothing was computed.
    pub(crate) fn scope(&mut self) -> u128 {
        self.next += 1;
        u128::from(self.next) << 64
    }

    /// Positions of the model's context.
    pub(super) fn context(&self) -> u32 {
        u32::try_from(self.engine.info.context_max.0).unwrap_or(u32::MAX)
    }

    /// Tokens of the KV pool.
    pub(super) fn room(&self) -> usize {
        (self.engine.info.kv_blocks * self.engine.info.block_tokens) as usize
    }

    /// Time from the submission of a prompt to its first token.
    pub(crate) fn first_token(&mut self, prompt: &Sectioned, scope: u128) -> Result<First, BenchError> {
        let begin = self.clock.now();
        let asked = Asked { prompt: prompt.clone(), output: 1, temperature: 0.0, seed: 0 };
        self.submit(std::slice::from_ref(&asked), scope)?;
        let mut all = Usage::default();
        while let Some(events) = self.step()? {
            for event in events {
                if let Event::RelQueryDone { usage, .. } = event {
                    all = usage;
                }
            }
        }
        Ok(First { time: self.clock.now().since(begin), usage: all })
    }

    /// Runs rows as one relQuery that has the machine for itself.
    pub(super) fn row_ends(&mut self, rows: &[Asked], scope: u128) -> Result<RowEnds, BenchError> {
        let begin = self.clock.now();
        self.submit(rows, scope)?;
        let (mut first, mut steps_behind) = (None, 0);
        while let Some(events) = self.step()? {
            steps_behind += usize::from(first.is_some());
            if first.is_none() && events.iter().any(|event| matches!(event, Event::RowDone { .. })) {
                first = Some(self.clock.now().since(begin));
            }
        }
        let last = self.clock.now().since(begin);
        Ok(RowEnds { first: first.unwrap_or(last), last, steps_behind })
    }

    /// Submits rows as one relQuery, which gets the number that is returned.
    pub(super) fn submit(&mut self, rows: &[Asked], scope: u128) -> Result<RelQueryId, BenchError> {
        self.next += 1;
        let id = RelQueryId(self.next);
        let item = |(row, asked): (u32, &Asked)| {
            let tokens = TokenCount(asked.prompt.prompt.len() as u64);
            let generation = Generation {
                output_max: TokenCount(asked.output),
                temperature: asked.temperature,
                ignore_end: true,
                ..Generation::default()
            };
            WorkItem {
                row,
                prompt: asked.prompt.prompt.as_slice().into(),
                spans: [Span { kind: SpanKind::Template, tokens }].into(),
                sections: asked.prompt.sections.as_slice().into(),
                generation: Arc::new(generation),
                seed: asked.seed,
            }
        };
        self.scheduler.submit(Submission {
            id,
            tenant: TenantId(0),
            weight: 1_000,
            scope,
            class: ServiceClass::Interactive,
            arrival: self.clock.now(),
            deadline: None,
            items: (0..).zip(rows).map(item).collect(),
        })?;
        Ok(id)
    }

    /// Runs a step, and says what came of it; `None` where nothing is left to do.
    pub(super) fn step(&mut self) -> Result<Option<Vec<Event>>, BenchError> {
        let Some(plan) = self.scheduler.plan(self.clock.now()) else { return Ok(None) };
        let outcome = self.engine.executor.step(&plan)?;
        Ok(Some(self.scheduler.apply(&outcome, self.clock.now())))
    }

    /// The time.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }
}

/// An undivided prompt.
pub(crate) fn whole(prompt: Vec<TokenId>) -> Sectioned {
    Sectioned { prompt, sections: Vec::new() }
}

/// A document of about as many tokens, unlike those of other numbers.
pub(super) fn document(text: &dyn Tokenizer, tokens: usize, number: usize) -> String {
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

/// The median.
pub(crate) fn median(runs: &[First]) -> Nanos {
    let mut times: Vec<Nanos> = runs.iter().map(|run| run.time).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(Nanos(0))
}

/// Milliseconds.
pub(super) fn ms(span: Nanos) -> f64 {
    span.0 as f64 / 1e6
}
