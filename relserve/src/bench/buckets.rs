//! `relserve bench buckets`: the benchmark of *Dynamic Prefix Bucketing at Scale* on this machine's engine,
//! one replica.
//!
//! Prompts of a prefix that many have and a suffix of their own (vLLM's `PrefixRepetitionRandomDataset`), in
//! random order, from a source that gives so many a second. Naive batches wait for all their rows; the other
//! ways keep the engine fed, with rows as they come, sorted once all have come, or from prefix buckets
//! (`ir::bucket`). Steps take the time they take; while the engine has nothing to do, time goes on to the
//! source's next row. The same at full size, with many replicas and made-up steps: `docs/BUCKETS.md`.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;
use std::sync::Arc;

use base::{
    Executor, Nanos, RelQueryId, ServiceClass, Span, SpanKind, Submission, TenantId, Time, TokenCount,
    TokenId, WorkItem,
};
use gateway::config::Config;
use ir::bucket::{BucketSettings, Buffer};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use scheduler::{CostModel, Event, Policy, Scheduler, SchedulerConfig};
use serving::clock::Clock;
use serving::load;

use super::BenchError;
use crate::tables::answer_of;

/// What to run. The document's own numbers: 200,000 prompts, 512 prefixes of 256 tokens, suffixes of 256, 128
/// output tokens, batches of 512 rows, a buffer of 5,000 rows.
#[derive(Clone, Debug, clap::Args)]
pub struct BucketsArgs {
    /// How many prompts.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    prompts: u32,
    /// How many prefixes they have.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    prefixes: u32,
    /// Tokens of a prefix.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    prefix: u32,
    /// Tokens of a suffix.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    suffix: u32,
    /// Output tokens of each.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    output: u64,
    /// Prompts that the source gives in a second.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Rows that run at a time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    at_once: u32,
    /// Rows of a naive batch.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Tokens of the KV pool that are used; rows that run have to fit too.
    #[arg(long, default_value_t = 16_384)]
    cache_tokens: u32,
    /// Rows of the buffer.
    #[arg(long, default_value_t = 480, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    buffer: u32,
    /// What prompts are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

type PromptTokens = Arc<[TokenId]>;

impl BucketsArgs {
    /// The prompts, each prefix equally often, in random order.
    fn draw(&self, vocab: u32) -> Vec<PromptTokens> {
        let mut random = rand::rngs::StdRng::seed_from_u64(self.seed);
        let mut tokens = |count: u32| -> Vec<TokenId> {
            (0..count).map(|_| TokenId(random.random_range(0..vocab))).collect()
        };
        let prefixes: Vec<Vec<TokenId>> = (0..self.prefixes).map(|_| tokens(self.prefix)).collect();
        let prompt = |number: u32| {
            let prefix = &prefixes[(number % self.prefixes) as usize];
            prefix.iter().copied().chain(tokens(self.suffix)).collect()
        };
        let mut prompts: Vec<PromptTokens> = (0..self.prompts).map(prompt).collect();
        prompts.shuffle(&mut random);
        prompts
    }
}

/// How rows are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Naive,
    Continuous,
    Sorted,
    Buckets,
}

impl Way {
    const ALL: [Self; 4] = [Self::Naive, Self::Continuous, Self::Sorted, Self::Buckets];

    fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive batches",
            Self::Continuous => "continuous",
            Self::Sorted => "sorted",
            Self::Buckets => "prefix buckets",
        }
    }
}

/// Rows between the source and the engine.
struct Feed<'a> {
    way: Way,
    source: std::slice::Iter<'a, PromptTokens>,
    read: u32,
    queue: VecDeque<PromptTokens>,
    buffer: Buffer<TokenId, PromptTokens>,
    batch: usize,
}

impl<'a> Feed<'a> {
    fn new(way: Way, prompts: &'a [PromptTokens], shape: &BucketsArgs) -> Self {
        let settings = BucketSettings { rows_max: shape.buffer as usize, ..BucketSettings::default() };
        Self {
            way,
            source: prompts.iter(),
            read: 0,
            queue: VecDeque::new(),
            buffer: Buffer::new(settings),
            batch: shape.batch as usize,
        }
    }

    fn is_read(&self) -> bool {
        self.source.len() == 0
    }

    fn is_empty(&self) -> bool {
        self.is_read() && self.queue.is_empty() && self.buffer.is_empty()
    }

    /// Takes in what the source has given by now; a full buffer stops it.
    fn read(&mut self, given: u64) {
        while u64::from(self.read) < given && !(self.way == Way::Buckets && self.buffer.is_full()) {
            let Some(prompt) = self.source.next() else { break };
            self.read += 1;
            match self.way {
                Way::Buckets => self.buffer.push(Arc::clone(prompt), prompt.len() as u64, Arc::clone(prompt)),
                _ => self.queue.push_back(Arc::clone(prompt)),
            }
        }
        if self.way == Way::Sorted && self.is_read() {
            self.queue.make_contiguous().sort();
        }
    }

    /// The next rows, where `running` of at most `room` more may run.
    fn next(&mut self, running: usize, room: usize) -> Vec<PromptTokens> {
        let ready = match self.way {
            Way::Naive if running > 0 || (self.queue.len() < self.batch && !self.is_read()) => 0,
            Way::Naive => self.batch,
            Way::Sorted if !self.is_read() => 0,
            Way::Continuous | Way::Sorted => room,
            Way::Buckets => {
                let bucket = self.buffer.pop(room, running == 0 || self.is_read());
                return bucket.map(|bucket| bucket.rows).unwrap_or_default();
            }
        };
        self.queue.drain(..ready.min(self.queue.len())).collect()
    }
}

/// What came of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Took {
    elapsed: Nanos,
    first: Nanos,
    /// Prompts read when the first answer was whole.
    read: u32,
    prompt: u64,
    hit: u64,
}

/// Runs the four ways on the configured model; each line is said as soon as it is known.
pub fn measure(config: &Config, shape: &BucketsArgs, say: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let mut engine = load::load(config.backend())?;
    let model = load::model_of(&engine, config.backend(), Clock::start());
    let prompts = shape.draw(model.vocab);
    let blocks = (shape.cache_tokens / model.block_tokens).min(model.kv_blocks);
    say(&format!("{}: {}", model.name, model.description));
    say(&format!(
        "{} prompts of {}+{} tokens, {} prefixes, {} output tokens, {} a second; {} rows at once, KV pool of {} tokens",
        shape.prompts,
        shape.prefix,
        shape.suffix,
        shape.prefixes,
        shape.output,
        shape.rate,
        shape.at_once,
        blocks * model.block_tokens
    ));
    say(&format!(
        "{:<16}{:>9}{:>11}{:>10}{:>16}{:>18}{:>12}",
        "way", "seconds", "to naive", "PHR", "of sorted PHR", "first answer, s", "rows read"
    ));
    let settings = SchedulerConfig {
        kv_blocks: blocks,
        block_tokens: model.block_tokens,
        sequences_max: shape.at_once,
        ..config.scheduler.clone()
    };
    let mut bench = BucketsBench::new(&settings, shape, &mut engine.executor)?;
    let took = Way::ALL.map(|way| bench.run(way, &prompts).map(|took| (way, took)));
    let took = took.into_iter().collect::<Result<Vec<_>, _>>()?;
    say(&text(&took));
    Ok(())
}

fn text(took: &[(Way, Took)]) -> String {
    let of =
        |wanted: Way| took.iter().find(|(way, _)| *way == wanted).map(|(_, took)| *took).unwrap_or_default();
    let rate = |took: &Took| took.hit as f64 / took.prompt.max(1) as f64;
    let seconds = |span: Nanos| span.0 as f64 / 1e9;
    let mut text = String::new();
    for (way, took) in took {
        let _ = writeln!(
            text,
            "{:<16}{:>9.2}{:>11.3}{:>9.1}%{:>15.1}%{:>18.2}{:>12}",
            way.name(),
            seconds(took.elapsed),
            seconds(took.elapsed) / seconds(of(Way::Naive).elapsed),
            100.0 * rate(took),
            100.0 * rate(took) / rate(&of(Way::Sorted)).max(f64::MIN_POSITIVE),
            seconds(took.first),
            took.read,
        );
    }
    text
}

struct BucketsBench<'a> {
    scheduler: Scheduler,
    executor: &'a mut dyn Executor,
    shape: &'a BucketsArgs,
    /// Whether putting rows together counts as time; not where steps are made up.
    is_timed: bool,
    now: Time,
    next: u64,
}

impl<'a> BucketsBench<'a> {
    fn new(
        settings: &SchedulerConfig,
        shape: &'a BucketsArgs,
        executor: &'a mut dyn Executor,
    ) -> Result<Self, BenchError> {
        let config = SchedulerConfig { policy: Policy::Fcfs, refit: false, ..settings.clone() };
        let scheduler = Scheduler::new(config, CostModel::default())?;
        Ok(Self { scheduler, executor, shape, is_timed: true, now: Time(0), next: 1 })
    }

    /// One way, from the source's first prompt to the last answer. It finds nothing that another left in the
    /// cache.
    fn run(&mut self, way: Way, prompts: &[PromptTokens]) -> Result<Took, BenchError> {
        let (begun, before) = (self.now, self.scheduler.stats());
        let scope = u128::from(self.next);
        let mut feed = Feed::new(way, prompts, self.shape);
        let mut took = Took::default();
        let (mut running, mut done) = (BTreeSet::new(), false);
        while !(feed.is_empty() && running.is_empty()) {
            let clock = Clock::start();
            feed.read(self.now.since(begun).0 / self.each());
            let room = (self.shape.at_once as usize).saturating_sub(running.len());
            let rows = feed.next(running.len(), room);
            for prompt in rows {
                running.insert(self.submit(prompt, scope)?);
            }
            if self.is_timed {
                self.now = self.now + Nanos(clock.now().0);
            }
            let Some(plan) = self.scheduler.plan(self.now) else {
                // The engine waits for the source.
                self.now = begun + Nanos(self.each() * (u64::from(feed.read) + 1));
                continue;
            };
            let outcome = self.executor.step(&plan)?;
            self.now = self.now + outcome.elapsed;
            for event in self.scheduler.apply(&outcome, self.now) {
                match event {
                    Event::RowDone { relquery, .. } => {
                        running.remove(&relquery);
                        if !std::mem::replace(&mut done, true) {
                            (took.first, took.read) = (self.now.since(begun), feed.read);
                        }
                    }
                    Event::RowFailed { error, .. } => return Err(BenchError::Case(error.to_string())),
                    _ => {}
                }
            }
        }
        let stats = self.scheduler.stats();
        took.elapsed = self.now.since(begun);
        took.prompt = stats.prompt_tokens - before.prompt_tokens;
        took.hit = stats.prefix_hit_tokens - before.prefix_hit_tokens;
        Ok(took)
    }

    /// Time between two prompts of the source.
    fn each(&self) -> u64 {
        1_000_000_000 / self.shape.rate
    }

    fn submit(&mut self, prompt: PromptTokens, scope: u128) -> Result<RelQueryId, BenchError> {
        let id = RelQueryId(self.next);
        self.next += 1;
        let tokens = TokenCount(prompt.len() as u64);
        let item = WorkItem {
            row: 0,
            prompt,
            spans: [Span { kind: SpanKind::Field, tokens }].into(),
            sections: Arc::default(),
            generation: answer_of(self.shape.output),
            seed: 0,
        };
        self.scheduler.submit(Submission {
            id,
            tenant: TenantId(1),
            weight: 1_000,
            scope,
            class: ServiceClass::Bulk,
            arrival: self.now,
            deadline: None,
            items: vec![item],
        })?;
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use sim::SimExecutor;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        shape: BucketsArgs,
    }

    /// Prefixes that the pool cannot hold all at a time, and steps that cost what their tokens do.
    #[test]
    fn buckets_hit_as_a_sort_does_and_answer_before_all_is_read() {
        let words = "buckets --prompts 800 --prefixes 40 --prefix 128 --suffix 32 --output 4 --rate 2000 --at-once 8 \
                     --batch 32 --cache-tokens 2560 --buffer 600";
        let shape = Command::try_parse_from(words.split_whitespace()).expect("flags").shape;
        let cost = CostModel {
            prefill_per_token: Nanos(50_000),
            decode_base: Nanos(1_000_000),
            ..CostModel::default()
        };
        let mut executor = SimExecutor::new(cost);
        let settings = SchedulerConfig { kv_blocks: 160, sequences_max: 8, ..SchedulerConfig::default() };
        let mut bench = BucketsBench::new(&settings, &shape, &mut executor).expect("it is valid");
        bench.is_timed = false;
        let prompts = shape.draw(1_000);
        let [naive, continuous, sorted, buckets] =
            Way::ALL.map(|way| bench.run(way, &prompts).expect("steps succeed"));
        let table = text(&Way::ALL.into_iter().zip([naive, continuous, sorted, buckets]).collect::<Vec<_>>());
        assert!(buckets.hit * 100 > sorted.hit * 95, "{table}");
        assert!(continuous.hit * 4 < sorted.hit * 3, "{table}");
        assert!(buckets.read < 100 && sorted.read == 800, "{table}");
        assert!(buckets.elapsed < continuous.elapsed && continuous.elapsed < naive.elapsed, "{table}");
        assert!([naive, continuous, sorted, buckets].iter().all(|took| took.prompt >= 800 * 160), "{table}");
    }
}
