//! `relserve eval spans`: what computing spans and modules apart from one another does to a model's answers.
//!
//! Every prompt is put to the model twice: undivided, each token seeing all before it, and in sections, as
//! `/v1/query` and `/v1/prompts` put it. The first one answers greedily and the second is asked for the same
//! distributions: as they are, and with some of their tokens computed again where they stand. Beside it, what
//! each takes to the first token. No figure is judged here: how much independence a model bears is its owner's to
//! decide.

use std::fmt::Write;
use std::ops::Range;
use std::path::Path;

use base::{Nanos, Section, Sees, TokenCount, Tokenizer};
use engine::Engine;
use engine::compare::{Comparison, Prompt, compare};
use engine::deviation::{PromptKeys, key_deviations};
use engine::text::TokenText as _;
use gateway::config::Config;
use ir::pml::{self, Layout};
use ir::span::{Plan, Rewriting, SpanLimits, SpanQuery, rewrite};
use ir::{Encoder, Rules, Sectioned, Tags};
use scheduler::CostModel;
use serde::Deserialize;
use serde_json::Value;
use serving::clock::Clock;
use serving::load;

use super::EvalError;
use crate::bench::BenchError;
use crate::bench::first_token::{FirstTokenHarness, median};

/// A line of a file of prompts.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Item {
    /// A span query without generates in its input.
    Spans {
        /// As `/v1/query` takes it.
        query: Value,
    },
    /// A PML prompt and its schema.
    Modules {
        /// As `/v1/schemas` takes it.
        schema: String,
        /// As `/v1/prompts` takes it.
        prompt: String,
    },
}

/// Which tokens of spans and modules are computed again where they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// So many first ones of each (EPIC's LegoLink, arXiv 2410.15332): `repair_tokens` of requests.
    First(u32),
    /// So many in a hundred of all, those whose keys differ most (CacheBlend, arXiv 2405.16444). Measured, not
    /// served: a prompt's tokens are known only after its first layers.
    Differing(u32),
}

/// Which repairs are measured.
#[derive(Clone, Debug, clap::Args)]
pub struct SpansArgs {
    /// First tokens of each span that are computed again.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 4, 16, 32])]
    first: Vec<u32>,
    /// Tokens that are computed again, in per cent: those whose keys differ most. Not of models on GPUs.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 15], value_parser = clap::value_parser!(u32).range(1..=100))]
    differing: Vec<u32>,
    /// How often each prompt is timed; medians count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: u64,
}

impl SpansArgs {
    fn repairs(&self) -> impl Iterator<Item = Repair> + '_ {
        let first = self.first.iter().copied().map(Repair::First);
        first.chain(self.differing.iter().copied().map(Repair::Differing))
    }
}

/// Stretches of tokens that are computed again, of each section.
type RepairedTokens = Vec<Vec<Range<u32>>>;

/// What was found of prompts of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct SpansTable {
    /// `spans`, `modules`, or either with how many there are in each prompt at least.
    pub kind: &'static str,
    /// How many there were.
    pub prompts: usize,
    /// Their tokens, and those of independent sections among them.
    pub tokens: (u64, u64),
    /// What it takes to compute them undivided.
    pub plain: Prefill,
    /// A line per repair.
    pub lines: Vec<SpansLine>,
}

/// What prompts take to their first tokens, all together, their spans computed before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefill {
    /// Tokens computed.
    pub computed: u64,
    /// Time to the first token.
    pub time: Nanos,
}

/// What was found with one repair.
#[derive(Clone, Debug, PartialEq)]
pub struct SpansLine {
    pub repair: Repair,
    /// How far the answers are.
    pub comparison: Comparison,
    pub prefill: Prefill,
}

/// Prompts with so many units and more are a kind of their own.
const MANY: usize = 8;

/// The prompts of a file, JSON in each line; without one a small set of our own.
pub fn items(file: Option<&Path>) -> Result<Vec<Item>, EvalError> {
    let (name, text) = match file {
        None => ("the built-in set".to_owned(), include_str!("spans.jsonl").to_owned()),
        Some(file) => {
            let read = std::fs::read_to_string(file);
            let text = read.map_err(|error| EvalError::File { file: file.to_owned(), error })?;
            (file.display().to_string(), text)
        }
    };
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let read = |(number, line): (usize, &str)| {
        let bad = |error: serde_json::Error| EvalError::Item(format!("line {number} of {name}: {error}"));
        serde_json::from_str(line).map_err(bad)
    };
    let items = lines.map(read).collect::<Result<Vec<Item>, EvalError>>()?;
    if items.is_empty() { Err(EvalError::NoPrompt) } else { Ok(items) }
}

/// Compares sections with undivided prompts on the configured model, repaired in each of the ways.
pub fn measure(config: &Config, items: &[Item], args: &SpansArgs) -> Result<Vec<SpansTable>, EvalError> {
    let engine = load::load(config.backend())?;
    let model = load::model_of(&engine, config.backend(), Clock::start());
    let context = u32::try_from(model.context_max.0).unwrap_or(u32::MAX);
    let tags = model.tags();
    let chat = tags.as_ref().ok().map(|tags| (&*model.text as &dyn base::ChatTemplate, tags));
    let encoder = Encoder { tokenizer: &*model.text, chat };
    let mut kinds: Vec<(&'static str, Vec<Sectioned>)> =
        ["spans", "modules", "8+ spans", "8+ modules"].map(|kind| (kind, Vec::new())).into();
    for (number, item) in (1..).zip(items) {
        let sectioned = sectioned(item, encoder, &tags, context)
            .map_err(|reason| EvalError::Item(format!("prompt {number}: {reason}")))?;
        let kind = item.kind() + if units(&sectioned) < MANY { 0 } else { 2 };
        kinds[kind].1.push(sectioned);
    }
    let harness = FirstTokenHarness::new(engine, &config.scheduler, CostModel::default()).map_err(timing)?;
    let mut bench = SpansEval { harness, rounds: args.rounds };
    let kinds = kinds.iter().filter(|(_, prompts)| !prompts.is_empty());
    kinds.map(|(kind, prompts)| bench.table(kind, prompts, args.repairs())).collect()
}

/// How many units a prompt has.
fn units(sectioned: &Sectioned) -> usize {
    let first = |(number, section): (usize, &Section)| matches!(section.sees, Sees::Unit { first, .. } if first as usize == number);
    sectioned.sections.iter().enumerate().filter(|numbered| first(*numbered)).count()
}

/// A model that answers and is timed.
struct SpansEval {
    harness: FirstTokenHarness,
    rounds: u64,
}

impl SpansEval {
    fn table(
        &mut self,
        kind: &'static str,
        prompts: &[Sectioned],
        repairs: impl Iterator<Item = Repair>,
    ) -> Result<SpansTable, EvalError> {
        let mut plain = Prefill::default();
        let mut tokens = (0, 0);
        for prompt in prompts {
            let independent = prompt.sections.iter().filter(|section| section.sees != Sees::Before);
            tokens.0 += prompt.prompt.len() as u64;
            tokens.1 += independent.map(|section| section.tokens.0).sum::<u64>();
            let undivided = Sectioned { prompt: divided(prompt).undivided().tokens, sections: Vec::new() };
            plain += self.prefill(&undivided, None)?;
        }
        let lines = repairs.map(|repair| self.line(prompts, repair)).collect::<Result<_, _>>()?;
        Ok(SpansTable { kind, prompts: prompts.len(), tokens, plain, lines })
    }

    fn line(&mut self, prompts: &[Sectioned], repair: Repair) -> Result<SpansLine, EvalError> {
        let (mut pairs, mut prefill) = (Vec::new(), Prefill::default());
        for prompt in prompts {
            let (chosen, choosing) = self.chosen(prompt, repair)?;
            let repaired = prompt.repaired(&chosen);
            prefill += self.prefill(&repaired, Some(prompt))?;
            prefill.time += choosing;
            pairs.push((divided(prompt).undivided(), divided(&repaired)));
        }
        let Engine { executor, text, .. } = &self.harness.engine;
        let model = executor.model();
        let comparison = compare((model, model), &pairs, (text.ends(), text.ids_end() as usize))?;
        Ok(SpansLine { repair, comparison, prefill })
    }

    /// The tokens that are computed again, and how long it took to choose them.
    fn chosen(&self, prompt: &Sectioned, repair: Repair) -> Result<(RepairedTokens, Nanos), EvalError> {
        match repair {
            Repair::First(count) => Ok((prompt.first_tokens(|_| count), Nanos(0))),
            Repair::Differing(percent) => {
                let (model, divided) = (self.harness.engine.executor.model(), divided(prompt));
                // Those of the spans are in memory, as a server's would be.
                let apart = PromptKeys::of(model, &divided)?;
                let begin = self.harness.now();
                let undivided = PromptKeys::of(model, &divided.undivided())?;
                let chosen = most_differing(&key_deviations(&divided, &apart, &undivided), percent);
                Ok((chosen, self.harness.now().since(begin)))
            }
        }
    }

    /// What a prompt takes where the spans of `known` are computed and nothing else is: the median.
    fn prefill(&mut self, prompt: &Sectioned, known: Option<&Sectioned>) -> Result<Prefill, EvalError> {
        let mut runs = Vec::new();
        for _ in 0..self.rounds {
            let scope = self.harness.scope();
            if let Some(ahead) = known.and_then(ahead) {
                self.harness.first_token(&ahead, scope).map_err(timing)?;
            }
            runs.push(self.harness.first_token(prompt, scope).map_err(timing)?);
        }
        let computed = runs.first().map_or(0, |run| run.usage.computed.0);
        Ok(Prefill { computed, time: median(&runs) })
    }
}

/// Why a prompt could not be timed.
fn timing(error: BenchError) -> EvalError {
    EvalError::Timing(error.to_string())
}

impl std::ops::AddAssign for Prefill {
    fn add_assign(&mut self, other: Self) {
        self.computed += other.computed;
        self.time += other.time;
    }
}

/// The prompt for who compares.
fn divided(sectioned: &Sectioned) -> Prompt {
    Prompt { tokens: sectioned.prompt.clone(), sections: sectioned.sections.as_slice().into() }
}

/// What computes a prompt's units and nothing else of it, but for a token that is read by nobody.
fn ahead(prompt: &Sectioned) -> Option<Sectioned> {
    let (mut made, mut start) = (Sectioned::default(), 0);
    let mut moved = Vec::new();
    for section in &prompt.sections {
        let end = start + section.tokens.0 as usize;
        moved.push(made.sections.len() as u32);
        if let Sees::Unit { first, origin, is_placeholder } = section.sees {
            let first = moved[first as usize];
            made.prompt.extend_from_slice(&prompt.prompt[start..end]);
            made.sections.push(Section { sees: Sees::Unit { first, origin, is_placeholder }, ..*section });
        }
        start = end;
    }
    let last = *made.prompt.last()?;
    let end = made.sections.iter().map(|section| section.positions().end).max()?;
    made.prompt.push(last);
    made.sections.push(Section {
        tokens: TokenCount(1),
        position: u32::try_from(end).ok()?,
        sees: Sees::Before,
    });
    Some(made)
}

/// So many in a hundred of the tokens of independent sections: those that differ most, in stretches.
fn most_differing(deviations: &[Vec<f32>], percent: u32) -> Vec<Vec<Range<u32>>> {
    let mut all: Vec<(f32, usize, u32)> = Vec::new();
    for (number, of_section) in deviations.iter().enumerate() {
        all.extend((0..).zip(of_section).map(|(token, far)| (*far, number, token)));
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let count = (all.len() * percent as usize).div_ceil(100);
    let mut chosen = vec![Vec::new(); deviations.len()];
    all[..count].iter().for_each(|(_, number, token)| chosen[*number].push(*token));
    let stretches = |mut tokens: Vec<u32>| {
        tokens.sort_unstable();
        let consecutive = tokens.chunk_by(|a, b| a + 1 == *b);
        consecutive.map(|tokens| tokens[0]..tokens[0] + tokens.len() as u32).collect()
    };
    chosen.into_iter().map(stretches).collect()
}

impl Item {
    fn kind(&self) -> usize {
        match self {
            Self::Spans { .. } => 0,
            Self::Modules { .. } => 1,
        }
    }
}

/// The prompt in sections, or why there is none.
fn sectioned(
    item: &Item,
    encoder: Encoder<'_>,
    tags: &Result<Tags, String>,
    context: u32,
) -> Result<Sectioned, String> {
    match item {
        Item::Spans { query } => {
            tags.as_ref().map_err(Clone::clone)?;
            let message = |error: ir::span::SpanError| error.to_string();
            let limits = SpanLimits::default();
            let query = SpanQuery::read(query, &limits).map_err(message)?;
            let rewriting =
                Rewriting { rules: Rules::all(), judges: None, found: &Default::default(), limits };
            let (query, _) = rewrite(query, &rewriting).map_err(message)?;
            let plan = Plan::new(&query).map_err(message)?;
            match &plan.calls[..] {
                [only] => plan
                    .assemble(only.id, encoder, context, &|_| ir::span::Output::Tokens(&[]))
                    .map_err(message),
                calls => Err(format!("it has {} generates; only the outermost is compared", calls.len())),
            }
        }
        Item::Modules { schema, prompt } => modules(schema, prompt, encoder.tokenizer, tags, context),
    }
}

fn modules(
    schema: &str,
    prompt: &str,
    tokenizer: &dyn Tokenizer,
    tags: &Result<Tags, String>,
    context: u32,
) -> Result<Sectioned, String> {
    let schema = pml::Schema::parse(schema).map_err(|error| format!("its schema, {error}"))?;
    let prompt = pml::PmlPrompt::parse(prompt).map_err(|error| error.to_string())?;
    let tags = tags.as_ref().map_err(String::as_str);
    let positions = pml::Positions { length_max: context, can_shift: true, bounds_arguments: true };
    let layout = Layout::new(&schema, tokenizer, tags, positions).map_err(|error| error.to_string())?;
    let assembly = layout.assemble(&prompt, tokenizer, tags, context).map_err(|error| error.to_string())?;
    Ok(assembly.sections(&layout))
}

/// The tables, for people.
pub fn text(tables: &[SpansTable]) -> String {
    let mut text = "spans computed apart, against each token seeing all before it (KL: divergence of the next token's distribution, \
         in nats; prefill: of all prompts, the spans in memory)\n"
        .to_owned();
    for SpansTable { kind, prompts, tokens: (all, apart), plain, lines } in tables {
        let answers = lines.first().map_or(0, |line| line.comparison.positions);
        let _ = writeln!(
            text,
            "{kind}: {prompts} prompts of {all} tokens, {:.0} % of them in {}, {answers} answer tokens; undivided {:.0} ms\n\
             {:<10}{:>12}{:>10}{:>10}{:>10}{:>8}{:>10}{:>8}",
            100.0 * *apart as f64 / (*all).max(1) as f64,
            kind.trim_start_matches("8+ "),
            plain.time.as_seconds() * 1e3,
            "repaired",
            "same token",
            "mean KL",
            "max KL",
            "computed",
            "less",
            "ms",
            "faster"
        );
        for SpansLine { repair, comparison, prefill } in lines {
            let shown = |value: Option<f64>, places: usize| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.places$}"))
            };
            let repair = match repair {
                Repair::First(tokens) => format!("first {tokens}"),
                Repair::Differing(percent) => format!("most {percent} %"),
            };
            let _ = writeln!(
                text,
                "{repair:<10}{:>10} %{:>10}{:>10.4}{:>10}{:>7.1}x{:>10.0}{:>7.1}x",
                shown(comparison.agreement().map(|share| 100.0 * share), 1),
                shown(comparison.mean(), 4),
                comparison.divergence_max,
                prefill.computed,
                plain.computed as f64 / prefill.computed.max(1) as f64,
                prefill.time.as_seconds() * 1e3,
                plain.time.0 as f64 / prefill.time.0.max(1) as f64,
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(first: &[u32], differing: &[u32]) -> SpansArgs {
        SpansArgs { first: first.into(), differing: differing.into(), rounds: 1 }
    }

    #[test]
    fn the_built_in_set_is_compared_on_the_demo_model() {
        let items = items(None).expect("it is shipped");
        let tables =
            measure(&Config::default(), &items, &args(&[0, 8, 10_000], &[20])).expect("steps succeed");
        let shown = text(&tables);
        let kinds: Vec<&str> = tables.iter().map(|table| table.kind).collect();
        assert_eq!(kinds, ["spans", "modules", "8+ spans"], "{shown}");
        for SpansTable { kind, prompts, tokens, plain, lines } in &tables {
            assert!(0 < tokens.1 && tokens.1 < tokens.0, "{shown}");
            let [none, first, all, differing] = &lines[..] else { panic!("{shown}") };
            for line in lines {
                let Comparison { positions, divergence, .. } = line.comparison;
                assert!(positions >= *prompts as u64 && divergence.is_finite(), "{shown}");
            }
            // Spans that do not see one another are another prompt to the model: it must show.
            assert!(none.comparison.divergence > 1e-3, "{shown}");
            assert!(none.prefill.computed < first.prefill.computed, "{shown}");
            assert!(none.prefill.computed < differing.prefill.computed, "{shown}");
            assert!(first.prefill.computed < all.prefill.computed, "{shown}");
            // Repaired to the end they are the prompt itself, but for positions that arguments leave free.
            let least = if *kind == "modules" { 1.0 } else { 10.0 };
            assert!(all.comparison.divergence < none.comparison.divergence / least, "{shown}");
            assert!(all.prefill.computed <= plain.computed, "{shown}");
        }
    }

    #[test]
    fn one_span_at_the_beginning_changes_nothing() {
        let prompt = r#"<prompt schema="s"><m/>And this is new.</prompt>"#;
        let schema = r#"<schema name="s"><module name="m">A text that begins a prompt, as any would.</module></schema>"#;
        let item = Item::Modules { schema: schema.into(), prompt: prompt.into() };
        let mut config = Config::default();
        config.engine.dtype = Some(engine::checkpoint::Dtype::F32);
        let tables = measure(&config, &[item], &args(&[0, 16], &[])).expect("steps succeed");
        let [none, first] = &tables[0].lines[..] else { panic!("two repairs") };
        assert!(none.comparison.divergence_max < 1e-5, "{}", text(&tables));
        assert_eq!(none.prefill.computed, first.prefill.computed, "nothing is to be repaired");
    }

    #[test]
    fn repaired_to_their_ends_spans_are_the_undivided_prompt() {
        let mut config = Config::default();
        config.engine.dtype = Some(engine::checkpoint::Dtype::F32);
        let items = items(None).expect("it is shipped");
        let tables = measure(&config, &items, &args(&[10_000], &[100])).expect("steps succeed");
        // Modules leave positions free, which the undivided prompt does not.
        let spans = tables.iter().filter(|table| table.kind != "modules");
        for line in spans.flat_map(|table| &table.lines) {
            assert!(line.comparison.divergence_max < 1e-5, "{}", text(&tables));
        }
    }

    #[test]
    fn the_tokens_that_differ_most_are_chosen_in_stretches() {
        let far = [vec![], vec![0.1, 0.9, 0.8, 0.0, 0.7], vec![0.2, 0.3], vec![]];
        let one = |range: Range<u32>| -> Vec<Range<u32>> { std::iter::once(range).collect() };
        assert_eq!(most_differing(&far, 50), [vec![], vec![1..3, 4..5], one(1..2), vec![]]);
        assert_eq!(most_differing(&far, 100), [vec![], one(0..5), one(0..2), vec![]]);
        assert_eq!(most_differing(&far, 1), [vec![], one(1..2), vec![], vec![]]);
    }

    #[test]
    fn what_cannot_be_compared_is_named_by_its_line_or_number() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("prompts.jsonl");
        let refused = |text: &str| {
            std::fs::write(&file, text).expect("it can be written");
            let read =
                items(Some(&file)).and_then(|items| measure(&Config::default(), &items, &args(&[0], &[])));
            read.expect_err("refused").to_string()
        };
        assert!(refused("\n{\"quarry\": 1}").starts_with("line 2 of "));
        assert_eq!(refused(""), "there is no prompt");
        let nested =
            r#"{"query": {"g": {"input": {"seq": [{"g": {"input": {"user": "a"}}}, {"user": "b"}]}}}}"#;
        assert_eq!(refused(nested), "prompt 1: it has 2 generates; only the outermost is compared");
        let wrong = r#"{"schema": "<schema name='a'/>", "prompt": "<prompt schema='b'/>"}"#;
        assert!(refused(wrong).contains("the prompt is for the schema `b`"));
    }

    #[test]
    fn the_table_has_a_line_per_repair() {
        let comparison =
            Comparison { positions: 64, agreeing: 60, divergence: 3.2, divergence_max: 0.912_34 };
        let line = |repair, computed| SpansLine {
            repair,
            comparison,
            prefill: Prefill { computed, time: Nanos(12_300_000) },
        };
        let table = SpansTable {
            kind: "8+ spans",
            prompts: 4,
            tokens: (400, 300),
            plain: Prefill { computed: 400, time: Nanos(98_400_000) },
            lines: vec![line(Repair::First(0), 40), line(Repair::Differing(15), 80)],
        };
        insta::assert_snapshot!(text(&[table]), @r"
        spans computed apart, against each token seeing all before it (KL: divergence of the next token's distribution, in nats; prefill: of all prompts, the spans in memory)
        8+ spans: 4 prompts of 400 tokens, 75 % of them in spans, 64 answer tokens; undivided 98 ms
        repaired    same token   mean KL    max KL  computed    less        ms  faster
        first 0         93.8 %    0.0500    0.9123        40   10.0x        12    8.0x
        most 15 %       93.8 %    0.0500    0.9123        80    5.0x        12    8.0x
        ");
    }
}
