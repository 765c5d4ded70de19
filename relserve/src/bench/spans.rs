//! `relserve bench spans`: time to the first token of span queries (Span Queries, sections 5.6 and 5.7).
//!
//! *Documents*: a question about made-up documents, as a prompt in which each token sees all before it, and
//! as spans: not computed yet, and computed by an earlier query that had them in another order. *Judge*: a
//! call that reads what candidates say at a temperature above 0, from the moment the last candidate has
//! ended. All run through the real scheduler and executor in turn, from the query's JSON on, tokenizing
//! included. Answers differ where documents' not seeing each other matters: `relserve eval spans` measures
//! that, this time alone.

use std::sync::Arc;

use base::{Nanos, RelQueryId, TokenId};
use gateway::config::Config;
use gateway::services::query::ahead;
use ir::span::{Plan, Rewriting, SpanLimits, SpanPart, SpanQuery, rewrite};
use ir::{Encoder, Rules, Sectioned, Tags};
use scheduler::{Event, Usage};
use serde_json::{Value, json};

use super::BenchError;
use super::first_token::{Asked, First, FirstTokenHarness, document, median, ms, whole};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Sizes {
    /// Numbers of documents, smallest first.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    documents: Vec<usize>,
    /// Tokens of a document; the paper's are as long as vLLM's source files.
    #[arg(long, default_value_t = 2_857)]
    tokens: usize,
    /// Numbers of candidates.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 24])]
    candidates: Vec<usize>,
    /// Output tokens of a candidate, about.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(8..=10_000))]
    output: u64,
    /// Their temperature.
    #[arg(long, default_value_t = 0.5)]
    temperature: f32,
    /// How often each is run; medians count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
}

/// What was measured of a number of documents.
#[derive(Clone, Debug, PartialEq)]
struct Documents {
    count: usize,
    tokens: u64,
    plain: Vec<First>,
    miss: Vec<First>,
    hit: Vec<First>,
}

/// What was measured of a number of candidates.
#[derive(Clone, Debug, PartialEq)]
struct Judge {
    candidates: usize,
    plain: Vec<First>,
    spans: Vec<First>,
}

/// Measures the configured model; each line of the tables is said as soon as it is known.
pub fn measure(config: &Config, sizes: &Sizes, say: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let mut bench = SpansBench::new(FirstTokenHarness::load(config)?)?;
    say(&format!(
        "{:>10}{:>9}{:>12}{:>10}{:>10}{:>8}{:>8}",
        "documents", "tokens", "plain ms", "miss ms", "hit ms", "miss", "hit"
    ));
    for count in &sizes.documents {
        // A prompt that sees all, one of spans, and the spans that the third finds.
        let (needed, room) = (3 * count * (sizes.tokens + 64), bench.harness.room());
        if needed > room {
            say(&format!("{count:>10}  needs a KV pool of {needed} tokens, has {room} (engine.kv_bytes)"));
            continue;
        }
        say(&bench.documents(*count, sizes)?.text());
    }
    say(&format!("{:>10}{:>12}{:>10}{:>10}", "candidates", "plain ms", "spans ms", "ratio"));
    for count in &sizes.candidates {
        say(&bench.judge(*count, sizes)?.text());
    }
    Ok(())
}

fn over(plain: &[First], other: &[First]) -> f64 {
    median(plain).0 as f64 / median(other).0.max(1) as f64
}

impl Documents {
    fn text(&self) -> String {
        let Self { count, tokens, plain, miss, hit } = self;
        format!(
            "{count:>10}{tokens:>9}{:>12.1}{:>10.1}{:>10.1}{:>7.1}x{:>7.1}x",
            ms(median(plain)),
            ms(median(miss)),
            ms(median(hit)),
            over(plain, miss),
            over(plain, hit)
        )
    }
}

impl Judge {
    fn text(&self) -> String {
        let (plain, spans) = (median(&self.plain), median(&self.spans));
        let ratio = over(&self.plain, &self.spans);
        format!("{:>10}{:>12.1}{:>10.1}{ratio:>9.1}x", self.candidates, ms(plain), ms(spans))
    }
}

struct SpansBench {
    harness: FirstTokenHarness,
    tags: Tags,
    context: u32,
}

impl SpansBench {
    fn new(harness: FirstTokenHarness) -> Result<Self, BenchError> {
        let tags = Tags::of(&*harness.engine.text, &*harness.engine.text);
        let tags = tags.map_err(|error| BenchError::Case(error.to_string()))?;
        Ok(Self { tags, context: harness.context(), harness })
    }

    fn documents(&mut self, count: usize, sizes: &Sizes) -> Result<Documents, BenchError> {
        let texts: Vec<Value> = (0..count)
            .map(|number| json!({ "user": document(&*self.harness.engine.text, sizes.tokens, number) }))
            .collect();
        let backwards: Vec<Value> = texts.iter().rev().cloned().collect();
        let question = |join: &str, documents: &[Value], round: u64| {
            json!({"g": {"input": {"seq": [
                {"system": "Answer from the documents."}, { join: documents }, {"user": format!("{round}: what is said of {round}?")},
            ]}}})
        };
        let mut found = Documents { count, tokens: 0, plain: Vec::new(), miss: Vec::new(), hit: Vec::new() };
        let known = self.harness.scope();
        self.ask(&question("plus", &backwards, sizes.rounds), known)?;
        for round in 0..sizes.rounds {
            let (one, other) = (self.harness.scope(), self.harness.scope());
            let plain = self.ask(&question("cross", &texts, round), one)?;
            found.tokens = plain.usage.prompt.0;
            found.plain.push(plain);
            found.miss.push(self.ask(&question("plus", &texts, round), other)?);
            found.hit.push(self.ask(&question("plus", &texts, round), known)?);
        }
        Ok(found)
    }

    /// Time from a query's JSON to the first token of its only call.
    fn ask(&mut self, query: &Value, scope: u128) -> Result<First, BenchError> {
        let begin = self.harness.now();
        let plan = plan(query)?;
        let prompt = self.assemble(&plan, plan.calls.len() - 1, &[])?;
        let First { usage, .. } = self.harness.first_token(&prompt, scope)?;
        Ok(First { time: self.harness.now().since(begin), usage })
    }

    fn encoder(&self) -> Encoder<'_> {
        let text = &*self.harness.engine.text;
        Encoder { tokenizer: text, chat: Some((text, &self.tags)) }
    }

    fn assemble(&self, plan: &Plan, call: usize, outputs: &[Vec<TokenId>]) -> Result<Sectioned, BenchError> {
        plan.assemble(plan.calls[call].id, self.encoder(), self.context, &|id| {
            ir::span::Output::Tokens(&outputs[id.0])
        })
        .map_err(case)
    }

    /// What a finished candidate leaves, as the row that computes the rest of its last block.
    fn ahead(&self, plan: &Plan, call: usize, outputs: &[Vec<TokenId>]) -> Result<Sectioned, BenchError> {
        let parts = [SpanPart::Whole(plan.calls[call].id)];
        Ok(ahead(
            plan.span(&parts, self.encoder(), self.context, &|id| ir::span::Output::Tokens(&outputs[id.0]))
                .map_err(case)?,
        ))
    }

    fn judge(&mut self, candidates: usize, sizes: &Sizes) -> Result<Judge, BenchError> {
        let query = |join: &str| {
            let candidate = json!({"temperature": sizes.temperature, "input": {"cross": [
                {"system": "You write short introductory mails."},
                {"user": "My name is Shiloh. I am a data scientist with ten years of experience. Write a mail to a company."},
            ]}});
            json!({"g": {"temperature": 0, "input": {"seq": [
                {"system": "You rank mails. Better ones mention specifics, such as names of people and companies."},
                { join: [{"repeat": {"n": candidates, "g": candidate}}] },
            ]}}})
        };
        let (spans, plain) = (plan(&query("plus"))?, plan(&query("cross"))?);
        let mut found = Judge { candidates, plain: Vec::new(), spans: Vec::new() };
        let scope = self.harness.scope();
        // The first round computes what all have in common, for both.
        for round in 0..=sizes.rounds {
            let (outputs, judged) = self.candidates(&spans, sizes, round, scope)?;
            let begin = self.harness.now();
            let prompt = self.assemble(&plain, candidates, &outputs)?;
            let First { usage, .. } = self.harness.first_token(&whole(prompt.prompt), scope)?;
            let whole = First { time: self.harness.now().since(begin), usage };
            if round > 0 {
                found.spans.push(judged);
                found.plain.push(whole);
            }
        }
        Ok(found)
    }

    /// Runs the candidates, and the judge as soon as the last has ended: what they say, and what the judge
    /// waits.
    fn candidates(
        &mut self,
        plan: &Arc<Plan>,
        sizes: &Sizes,
        round: u64,
        scope: u128,
    ) -> Result<(Vec<Vec<TokenId>>, First), BenchError> {
        let count = plan.calls.len() - 1;
        let mut rows = Vec::with_capacity(count);
        for number in 0..count {
            let prompt = self.assemble(plan, number, &[])?;
            // They end one after another, as answers of a model do.
            let output = sizes.output / 2 + (number as u64 * 37) % sizes.output;
            rows.push(Asked {
                prompt,
                output,
                temperature: sizes.temperature,
                seed: round * 1_000 + number as u64,
            });
        }
        let candidates = self.harness.submit(&rows, scope)?;
        let mut outputs = vec![Vec::new(); count];
        let mut left = count;
        let (mut judge, mut begin, mut first): (Option<RelQueryId>, _, _) = (None, Nanos(0), None);
        let mut used = Usage::default();
        let start = self.harness.now();
        while let Some(events) = self.harness.step()? {
            for event in events {
                match event {
                    Event::Token { relquery, row, token, .. } if relquery == candidates => {
                        outputs[row as usize].push(token);
                    }
                    Event::Token { relquery, .. } if Some(relquery) == judge => {
                        first.get_or_insert_with(|| self.harness.now().since(start));
                    }
                    Event::RowDone { relquery, row, .. } if relquery == candidates => {
                        left -= 1;
                        begin = self.harness.now().since(start);
                        let (prompt, is_judge) = match left {
                            0 => (self.assemble(plan, count, &outputs)?, true),
                            _ => (self.ahead(plan, row as usize, &outputs)?, false),
                        };
                        let asked = Asked { prompt, output: 1, temperature: 0.0, seed: 0 };
                        let id = self.harness.submit(std::slice::from_ref(&asked), scope)?;
                        judge = is_judge.then_some(id).or(judge);
                    }
                    Event::RelQueryDone { relquery, usage, .. } if Some(relquery) == judge => used = usage,
                    _ => {}
                }
            }
        }
        let first = first.ok_or_else(|| BenchError::Case("the judge said nothing".into()))?;
        Ok((outputs, First { time: Nanos(first.0.saturating_sub(begin.0)), usage: used }))
    }
}

/// A query with a plus of one kept, as the paper measures it.
fn plan(query: &Value) -> Result<Arc<Plan>, BenchError> {
    let limits = SpanLimits { bytes_max: usize::MAX, ..SpanLimits::default() };
    let query = SpanQuery::read(query, &limits).map_err(case)?;
    let rules = Rules::all().without("unwrap_plus");
    let rewriting = Rewriting { rules, judges: None, found: &Default::default(), limits };
    let (query, _) = rewrite(query, &rewriting).map_err(case)?;
    Ok(Arc::new(Plan::new(&query).map_err(case)?))
}

fn case(error: ir::span::SpanError) -> BenchError {
    BenchError::Case(error.to_string())
}

#[cfg(test)]
mod tests {
    use scheduler::CostModel;
    use serving::load;

    use super::*;

    fn bench() -> SpansBench {
        let config = Config::default();
        let engine = load::load(config.backend()).expect("the demo model loads");
        let harness =
            FirstTokenHarness::new(engine, &config.scheduler, CostModel::default()).expect("valid settings");
        SpansBench::new(harness).expect("it has a chat template")
    }

    fn sizes() -> Sizes {
        Sizes {
            documents: Vec::new(),
            tokens: 60,
            candidates: Vec::new(),
            output: 10,
            temperature: 0.5,
            rounds: 2,
        }
    }

    #[test]
    fn a_hit_computes_what_is_new_and_the_others_compute_it_all() {
        let found = bench().documents(3, &sizes()).expect("steps succeed");
        for (plain, (miss, hit)) in found.plain.iter().zip(found.miss.iter().zip(&found.hit)) {
            assert_eq!(plain.usage.computed.0, found.tokens);
            assert_eq!(miss.usage.computed, miss.usage.prompt);
            assert!(hit.usage.shifted.0 >= 180 && hit.usage.computed.0 < 60, "{found:?}");
        }
        assert_eq!(found.text().lines().count(), 1);
    }

    #[test]
    fn a_judge_computes_what_nobody_else_has() {
        let found = bench().judge(4, &sizes()).expect("steps succeed");
        for (plain, spans) in found.plain.iter().zip(&found.spans) {
            assert!(spans.usage.shifted.0 > spans.usage.prompt.0 / 2, "{found:?}");
            // The system's message is known to both; of four candidates the last one's block, and the
            // answer's markup.
            assert!(spans.usage.computed.0 < plain.usage.computed.0, "{found:?}");
        }
    }
}
