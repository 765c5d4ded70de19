//! `relserve eval spans`: what computing spans and modules apart from one another does to a model's answers.
//!
//! Every prompt is put to the model twice: undivided, each token seeing all before it, and in sections, as
//! `/v1/query` and `/v1/prompts` put it. The first one answers greedily and the second is asked for the same
//! distributions. No figure is judged here: how much independence a model bears is its owner's to decide.

use std::fmt::Write;
use std::path::Path;

use base::Tokenizer;
use engine::Engine;
use engine::compare::{Comparison, Prompt, compare};
use gateway::config::Config;
use ir::pml::{self, Layout};
use ir::span::{Plan, Rewriting, SpanLimits, SpanQuery, rewrite};
use ir::{Encoder, Rules, Sectioned, Tags};
use serde::Deserialize;
use serde_json::Value;
use serving::clock::Clock;
use serving::load;

use super::EvalError;

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

/// What was found of prompts of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct SpansLine {
    /// `spans` or `modules`.
    pub kind: &'static str,
    /// How many there were.
    pub prompts: usize,
    /// Their tokens, and those of independent sections among them.
    pub tokens: (u64, u64),
    /// How far the answers are.
    pub comparison: Comparison,
}

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

/// Compares sections with undivided prompts on the configured model.
pub fn measure(config: &Config, items: &[Item]) -> Result<Vec<SpansLine>, EvalError> {
    let mut config = config.clone();
    config.engine.sequences_max = 1; // its pool is not used
    let engine = load::load(config.backend())?;
    let model = load::model_of(&engine, config.backend(), Clock::start());
    let context = u32::try_from(model.context_max.0).unwrap_or(u32::MAX);
    let tags = model.tags();
    let chat = tags.as_ref().ok().map(|tags| (&*model.text as &dyn base::ChatTemplate, tags));
    let encoder = Encoder { tokenizer: &*model.text, chat };
    let mut lines = Vec::new();
    for kind in ["spans", "modules"] {
        let mut pairs = Vec::new();
        let mut tokens = (0, 0);
        for (number, item) in (1..).zip(items).filter(|(_, item)| item.kind() == kind) {
            let sectioned = sectioned(item, encoder, &tags, context);
            let Sectioned { prompt, sections } =
                sectioned.map_err(|reason| EvalError::Item(format!("prompt {number}: {reason}")))?;
            tokens.0 += prompt.len() as u64;
            let independent = sections.iter().filter(|section| section.sees != base::Sees::Before);
            tokens.1 += independent.map(|section| section.tokens.0).sum::<u64>();
            let divided = Prompt { tokens: prompt, sections: sections.into() };
            pairs.push((divided.undivided(), divided));
        }
        if !pairs.is_empty() {
            lines.push(SpansLine { kind, prompts: pairs.len(), tokens, comparison: found(&engine, &pairs)? });
        }
    }
    Ok(lines)
}

fn found(engine: &Engine, pairs: &[(Prompt, Prompt)]) -> Result<Comparison, EvalError> {
    use engine::text::TokenText as _;
    let model = engine.executor.model();
    Ok(compare((model, model), pairs, (engine.text.ends(), engine.text.ids_end() as usize))?)
}

impl Item {
    fn kind(&self) -> &'static str {
        match self {
            Self::Spans { .. } => "spans",
            Self::Modules { .. } => "modules",
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
            let said = |error: ir::span::SpanError| error.to_string();
            let limits = SpanLimits::default();
            let query = SpanQuery::read(query, &limits).map_err(said)?;
            let rewriting =
                Rewriting { rules: Rules::all(), judges: None, found: &Default::default(), limits };
            let (query, _) = rewrite(query, &rewriting).map_err(said)?;
            let plan = Plan::new(&query).map_err(said)?;
            match &plan.calls[..] {
                [only] => {
                    plan.assemble(only.id, encoder, context, &|_| ir::span::Output::Tokens(&[])).map_err(said)
                }
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

/// The table, for people.
pub fn text(lines: &[SpansLine]) -> String {
    let mut text = format!(
        "computed apart, against each token seeing all before it (KL: divergence of the next token's distribution, in nats)\n\
         {:<10}{:>8}{:>10}{:>8}{:>14}{:>16}{:>12}{:>12}\n",
        "", "prompts", "tokens", "apart", "answer tokens", "same token", "mean KL", "max KL"
    );
    for SpansLine { kind, prompts, tokens: (all, apart), comparison } in lines {
        let shown = |value: Option<f64>, places: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.places$}"))
        };
        let _ = writeln!(
            text,
            "{kind:<10}{prompts:>8}{all:>10}{:>6.0} %{:>14}{:>14} %{:>12}{:>12.4}",
            100.0 * *apart as f64 / (*all).max(1) as f64,
            comparison.positions,
            shown(comparison.agreement().map(|share| 100.0 * share), 1),
            shown(comparison.mean(), 4),
            comparison.divergence_max
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_set_is_compared_on_the_demo_model() {
        let items = items(None).expect("it is shipped");
        let lines = measure(&Config::default(), &items).expect("steps succeed");
        let table = text(&lines);
        let kinds: Vec<&str> = lines.iter().map(|line| line.kind).collect();
        assert_eq!(kinds, ["spans", "modules"], "{table}");
        for line in &lines {
            let Comparison { positions, divergence, .. } = line.comparison;
            assert!(positions >= line.prompts as u64, "{table}");
            // Spans that do not see one another are another prompt to the model: it must show, and be a
            // number.
            assert!(divergence > 1e-3 && divergence.is_finite(), "{table}");
            assert!(0 < line.tokens.1 && line.tokens.1 < line.tokens.0, "{table}");
        }
    }

    #[test]
    fn one_span_at_the_beginning_changes_nothing() {
        let prompt = r#"<prompt schema="s"><m/>And this is new.</prompt>"#;
        let schema = r#"<schema name="s"><module name="m">A text that begins a prompt, as any would.</module></schema>"#;
        let item = Item::Modules { schema: schema.into(), prompt: prompt.into() };
        let mut config = Config::default();
        config.engine.dtype = Some(engine::checkpoint::Dtype::F32);
        let lines = measure(&config, &[item]).expect("steps succeed");
        assert!(lines[0].comparison.divergence_max < 1e-5, "{}", text(&lines));
    }

    #[test]
    fn what_cannot_be_compared_is_named_by_its_line_or_number() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("prompts.jsonl");
        let refused = |text: &str| {
            std::fs::write(&file, text).expect("it can be written");
            let read = items(Some(&file)).and_then(|items| measure(&Config::default(), &items));
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
    fn the_table_has_a_line_per_kind() {
        let comparison =
            Comparison { positions: 64, agreeing: 60, divergence: 3.2, divergence_max: 0.912_34 };
        let line = SpansLine { kind: "spans", prompts: 4, tokens: (400, 300), comparison };
        insta::assert_snapshot!(text(&[line]), @r"
        computed apart, against each token seeing all before it (KL: divergence of the next token's distribution, in nats)
                   prompts    tokens   apart answer tokens      same token     mean KL      max KL
        spans            4       400    75 %            64          93.8 %      0.0500      0.9123
        ");
    }
}
