//! `relserve bench speculation`: one relQuery with and without guessed tokens.
//!
//! Prompts are the rows, each a user's turn; the model answers them greedily through the real scheduler and
//! executor, first in steps that guess nothing, then as `scheduler.speculation = "auto"` decides. What
//! differs is the number of steps; under a form (`--constraint`) also because what all its outputs begin with is computed
//! behind the prompt. Outputs are the same, but for the rounding of products in other batch
//! shapes: a model in bf16 that finds two tokens equally likely may then say the other.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{
    Compiled, Constraint, ConstraintCompiler as _, Executor as _, Generation, Nanos, RelQueryId,
    ServiceClass, Span, SpanKind, Submission, TenantId, Time, TokenCount, TokenId, WorkItem,
};
use engine::Engine;
use gateway::config::Config;
use scheduler::{CostModel, Event, Scheduler, SchedulerConfig, Speculation};
use serving::clock::Clock;
use serving::{calibrate, load};

use super::BenchError;
use crate::eval;

/// What to run.
#[derive(Debug, clap::Args)]
pub struct SpeculationArgs {
    /// A file of prompts, one a line [default: a small set of labelling prompts].
    #[arg(long)]
    prompts: Option<PathBuf>,
    /// Most output tokens of a row.
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    output: u64,
    /// Most rows that run at a time: those behind them find finished ones.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    at_once: u32,
    /// Whether rows go on behind the model's end tokens, up to `--output`.
    #[arg(long)]
    ignore_end: bool,
    /// The form of all answers: a file with a JSON schema (`.json`) or a grammar in the notation of Lark; without it any text.
    #[arg(long)]
    constraint: Option<PathBuf>,
}

/// What one run took.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    outputs: Vec<Vec<TokenId>>,
    steps: u64,
    /// Decode slots of all steps, and tokens that came of them.
    decodes: u64,
    decoded: u64,
    guessed: u64,
    accepted: u64,
    elapsed: Nanos,
}

/// Runs the prompts on the configured model both ways; the table.
pub fn measure(config: &Config, rows: &SpeculationArgs) -> Result<String, BenchError> {
    let prompts = eval::prompts(rows.prompts.as_deref())?;
    let cost = {
        let mut engine = load::load(config.backend())?;
        let model = load::model_of(&engine, config.backend(), Clock::start());
        calibrate::measure(&mut engine.executor, &model)?.cost
    };
    let mut runs = Vec::new();
    for speculation in [Speculation::Off, Speculation::Auto] {
        // A fresh executor: the last one remembers rows whose numbers are used again.
        let mut engine = load::load(config.backend())?;
        let settings = SchedulerConfig { speculation, ..config.scheduler.clone() };
        runs.push(run(&mut engine, settings, cost, &prompts, rows)?);
    }
    Ok(text(prompts.len(), &runs))
}

/// Runs the prompts as one relQuery.
fn run(
    engine: &mut Engine,
    settings: SchedulerConfig,
    cost: CostModel,
    prompts: &[String],
    rows: &SpeculationArgs,
) -> Result<Run, BenchError> {
    let info = &engine.info;
    let config = SchedulerConfig {
        kv_blocks: info.kv_blocks,
        block_tokens: info.block_tokens,
        sequences_max: rows.at_once,
        ..settings
    };
    let mut scheduler = Scheduler::new(config, cost)?;
    scheduler.submit(submission(engine, prompts, rows)?)?;
    let mut run = Run {
        outputs: vec![Vec::new(); prompts.len()],
        steps: 0,
        decodes: 0,
        decoded: 0,
        guessed: 0,
        accepted: 0,
        elapsed: Nanos(0),
    };
    let mut now = Time(0);
    while let Some(plan) = scheduler.plan(now) {
        let outcome = engine.executor.step(&plan)?;
        now = now + outcome.elapsed;
        run.elapsed = Nanos(run.elapsed.0.saturating_add(outcome.elapsed.0));
        run.steps += 1;
        for (slot, row) in plan.slots.iter().filter(|slot| slot.sample.is_some()).zip(&outcome.rows) {
            if let (false, Ok(sampled)) = (slot.is_prefill, &row.result) {
                run.decodes += 1;
                run.decoded += sampled.tokens.len() as u64;
            }
        }
        for event in scheduler.apply(&outcome, now) {
            if let Event::Token { row, token, .. } = event {
                run.outputs[row as usize].push(token);
            }
        }
    }
    let stats = scheduler.stats();
    (run.guessed, run.accepted) = (stats.guessed_tokens, stats.accepted_tokens);
    Ok(run)
}

/// The prompts as rows; those that have no room in the model's context are an error of the scheduler or
/// executor.
fn submission(engine: &Engine, prompts: &[String], rows: &SpeculationArgs) -> Result<Submission, BenchError> {
    let constraint = rows.constraint.as_deref().map(read_constraint).transpose()?;
    // Compiled once, as the gateway does.
    let compiled = match &constraint {
        Some(constraint) => engine.executor.constraints().compile(constraint),
        None => Ok(Compiled::default()),
    };
    let generation = Arc::new(Generation {
        output_max: TokenCount(rows.output),
        ignore_end: rows.ignore_end,
        constraint,
        compiled: compiled.map_err(|error| BenchError::Case(format!("the constraint {error}")))?,
        ..Generation::default()
    });
    let mut items = Vec::new();
    for (row, prompt) in (0..).zip(prompts) {
        let prompt = eval::tokens(&engine.text, prompt).map_err(eval::EvalError::from)?;
        let tokens = TokenCount(prompt.len() as u64);
        items.push(WorkItem {
            row,
            prompt: prompt.into(),
            spans: [Span { kind: SpanKind::Field, tokens }].into(),
            sections: Arc::default(),
            generation: Arc::clone(&generation),
            seed: 0,
        });
    }
    Ok(Submission {
        id: RelQueryId(1),
        tenant: TenantId(0),
        weight: 1_000,
        scope: 1,
        class: ServiceClass::Interactive,
        arrival: Time(0),
        deadline: None,
        items,
    })
}

/// The form that a file has answers in.
fn read_constraint(file: &Path) -> Result<Constraint, BenchError> {
    let text = std::fs::read_to_string(file).map_err(BenchError::file(file))?;
    let is_schema = file.extension().is_some_and(|extension| extension == "json");
    Ok(if is_schema { Constraint::JsonSchema(text) } else { Constraint::Grammar(text) })
}

/// The table of a run without guesses and one with them.
fn text(rows: usize, runs: &[Run]) -> String {
    let per_run = |row: usize| runs.iter().map(move |run| &run.outputs[row]);
    let same = (0..rows).filter(|row| per_run(*row).skip(1).eq(per_run(*row).take(runs.len() - 1))).count();
    let mut text = format!(
        "{rows} rows, {same} of them the same with and without guesses\n{:<12}{:>8}{:>24}{:>10}{:>10}{:>12}\n",
        "speculation", "steps", "tokens per decode slot", "guessed", "accepted", "ms"
    );
    for (name, run) in ["off", "auto"].into_iter().zip(runs) {
        let per_slot = run.decoded as f64 / run.decodes.max(1) as f64;
        let ms = run.elapsed.0 as f64 / 1e6;
        let _ = writeln!(
            text,
            "{name:<12}{:>8}{per_slot:>24.2}{:>10}{:>10}{ms:>12.1}",
            run.steps, run.guessed, run.accepted
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use engine::checkpoint::Dtype;

    use super::*;

    #[test]
    fn the_demo_model_answers_the_same_in_fewer_steps() {
        let mut config = Config::default();
        config.engine.dtype = Some(Dtype::F32);
        let prompts = eval::prompts(None).expect("they are shipped");
        let rows =
            SpeculationArgs { prompts: None, output: 24, at_once: 6, ignore_end: true, constraint: None };
        // A step costs much and a row little, whatever this machine is like.
        let cost = CostModel::default();
        let of = |speculation| {
            let mut engine = load::load(config.backend()).expect("the demo model loads");
            let settings = SchedulerConfig { speculation, refit: false, ..config.scheduler.clone() };
            run(&mut engine, settings, cost, &prompts, &rows).expect("steps succeed")
        };
        let runs = [Speculation::Off, Speculation::Auto].map(of);
        let table = text(prompts.len(), &runs);
        let [off, auto] = &runs;
        assert_eq!(off.outputs, auto.outputs, "{table}");
        assert_eq!((off.guessed, off.decodes), (0, off.decoded), "{table}");
        assert!(auto.accepted * 2 > auto.guessed && auto.steps * 10 < off.steps * 9, "{table}");
    }

    #[test]
    fn rows_whose_form_begins_alike_take_a_step_less_each() {
        let mut config = Config::default();
        config.engine.dtype = Some(Dtype::F32);
        let folder = tempfile::tempdir().expect("a directory");
        let form = folder.path().join("label.lark");
        let label = r#"start: "{\"label\": \"" ("positive" | "negative") "\"}""#;
        std::fs::write(&form, label).expect("the grammar is written");
        let prompts = eval::prompts(None).expect("they are shipped");
        let rows = SpeculationArgs {
            prompts: None,
            output: 24,
            at_once: 1,
            ignore_end: false,
            constraint: Some(form),
        };
        let of = |speculation| {
            let mut engine = load::load(config.backend()).expect("the demo model loads");
            let settings = SchedulerConfig { speculation, refit: false, ..config.scheduler.clone() };
            // Guesses do not pay, so that what is saved is the openings'.
            let cost = CostModel { decode_base: Nanos(0), ..CostModel::default() };
            run(&mut engine, settings, cost, &prompts, &rows).expect("steps succeed")
        };
        let [off, auto] = [Speculation::Off, Speculation::Auto].map(of);
        assert_eq!(off.outputs, auto.outputs);
        assert!(auto.steps + prompts.len() as u64 <= off.steps, "{} steps of {}", auto.steps, off.steps);
    }

    #[test]
    fn the_table_says_how_many_outputs_differ() {
        let off = Run {
            outputs: vec![vec![TokenId(1)], vec![TokenId(2)]],
            steps: 90,
            decodes: 600,
            decoded: 600,
            guessed: 0,
            accepted: 0,
            elapsed: Nanos(1_500_000_000),
        };
        let outputs = vec![vec![TokenId(1)], vec![TokenId(3)]];
        let auto = Run { outputs, steps: 40, decodes: 240, guessed: 500, accepted: 360, ..off.clone() };
        insta::assert_snapshot!(text(2, &[off, auto]), @r"
        2 rows, 1 of them the same with and without guesses
        speculation    steps  tokens per decode slot   guessed  accepted          ms
        off               90                    1.00         0         0      1500.0
        auto              40                    2.50       500       360      1500.0
        ");
    }
}
