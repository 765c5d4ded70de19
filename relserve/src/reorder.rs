//! `relserve reorder`: what another order of a table's rows and fields would save, before anything is sent to
//! a model.
//!
//! Hit rates are counted by the scheduler that serves, over an executor that computes nothing: its batches,
//! its prefix cache, its evictions.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use base::{ChatTemplate, TokenCount, Tokenizer};
use clap::{Args, ValueEnum};
use gateway::config::Config;
use ir::Template;
use ir::reorder::{
    BestOrder, Dependencies, Dependency, EarlyStop, FieldTable, FixedSearch, Method, Reordering,
    best_fixed_order, fixed_order, ggr, ophr, sort_rows,
};
use scheduler::{CostModel, SchedulerConfig};
use serving::clock::Clock;
use serving::load;
use sim::SimExecutor;

use crate::input::{Input, TableArgs};
use crate::tables::{FileTable, Price, Question, TableRunner, answer_of};
use crate::terminal::Failure;

/// Says which order of a table's rows and fields shares most, and what that saves.
#[derive(Clone, Debug, Args)]
pub struct Reorder {
    #[command(flatten)]
    source: TableArgs,
    /// Columns that determine each other, with commas between them; checked. Without it dependencies are
    /// looked for.
    #[arg(long = "fd", value_name = "COLUMNS")]
    dependencies: Vec<String>,
    /// Text around the record `{*}`.
    #[arg(long, default_value = "{*}")]
    template: String,
    /// Instructions in front [default: none].
    #[arg(long)]
    system: Option<String>,
    /// Whose tokens are counted: a folder or GGUF file [default: the configured model].
    #[arg(long)]
    model: Option<PathBuf>,
    /// What lengths of fields are counted in, for the order.
    #[arg(long, value_enum, default_value = "tokens")]
    lengths: Lengths,
    /// Looks at the first rows of the table only [default: all].
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    rows: usize,
    /// Shuffles the rows first; without it they stay as they lie.
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    /// When the search stops early.
    #[arg(long, value_enum, default_value = "never")]
    stop: Stop,
    /// Looks for the best order of all too, and gives up after so many splits [default: no such search].
    #[arg(long, value_name = "SPLITS")]
    ophr: Option<u64>,
    /// Tokens that the prefix cache holds; rows that run have to fit too.
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1_024..))]
    cache_tokens: u32,
    /// Rows that run at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    at_once: u32,
    /// Prices: openai, anthropic, or dollars for a million tokens as UNCACHED:CACHED.
    #[arg(long, value_name = "PRICE")]
    prices: Vec<Price>,
    /// Writes the plan: a line of JSON for each row, in the order of running; without it it is not kept.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Lengths {
    /// Tokens of the model.
    Tokens,
    Characters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stop {
    /// The whole depth.
    Never,
    /// Row depth 4, column depth 2, threshold 100,000 (section 6.5).
    Paper,
}

/// Orders of fields that are shown.
const ORDERS_SHOWN: usize = 5;

/// A line of the table.
struct TableLine {
    name: &'static str,
    order: BestOrder,
    ms: f64,
}

/// The lines, and what is to be said below them.
struct OrderLines {
    lines: Vec<TableLine>,
    notes: Vec<String>,
}

impl OrderLines {
    /// What `order: fields` runs: of its candidates the best, of equal ones the first.
    fn chosen(&self) -> Option<&BestOrder> {
        let candidates = self.lines.iter().filter(|line| !YARDSTICKS.contains(&line.name));
        candidates
            .map(|line| &line.order)
            .reduce(|best, order| if order.is_better_than(best) { order } else { best })
    }
}

impl Reorder {
    /// Solves, writes the plan; what to print.
    pub async fn run(&self, mut config: Config) -> Result<String, Failure> {
        config.model.dir = self.model.clone().or(config.model.dir);
        let engine = load::load(config.backend())?;
        let text = &*engine.text;
        let file = self.read().await?;
        let clock = Clock::start();
        let table = file.interned(&|texts| match self.lengths {
            Lengths::Tokens => text.count_stretches(texts),
            Lengths::Characters => ir::characters(texts),
        })?;
        let interned = ms(clock);
        let clock = Clock::start();
        let dependencies = self.dependencies(&file, &table)?;
        let found = ms(clock);
        let lines = self.lines(&table, &dependencies);
        let unit = match self.lengths {
            Lengths::Tokens => format!("tokens of {}", engine.info.name),
            Lengths::Characters => "characters".into(),
        };
        let mut out = format!(
            "{} rows, {} fields; lengths in {unit}, counted in {interned:.1} ms\n\
             {} dependencies in {found:.1} ms\n\n",
            table.rows(),
            file.columns.len(),
            dependencies.pairs().len(),
        );
        let chat: Option<&dyn ChatTemplate> = if text.has_chat_template() { Some(text) } else { None };
        self.table(&mut out, &file, &lines.lines, (text, chat))?;
        for note in &lines.notes {
            writeln!(out, "{note}")?;
        }
        let chosen = lines.chosen().ok_or("no order was tried")?;
        writeln!(out, "\nbest: {}", chosen.method.name())?;
        let plan = &chosen.order;
        summary(&mut out, &file, plan)?;
        if let Some(path) = &self.output {
            write_plan(path, &file, plan)?;
        }
        Ok(out)
    }

    async fn read(&self) -> Result<FileTable, Failure> {
        // A shuffled sample is one of the whole table.
        let read_max = if self.shuffle.is_some() { usize::MAX } else { self.rows };
        let mut file = match self.source.input.as_str() {
            "-" => FileTable::read(Path::new("-"), read_max)?,
            _ => FileTable::of(Input::open(&self.source).await?, read_max).await?,
        };
        if let Some(seed) = self.shuffle {
            use rand::SeedableRng;
            use rand::seq::SliceRandom;
            file.rows.shuffle(&mut rand::rngs::StdRng::seed_from_u64(seed));
            file.rows.truncate(self.rows);
        }
        match &self.source.columns {
            Some(columns) => Ok(file.select(columns)?),
            None => Ok(file),
        }
    }

    /// The declared dependencies, all of which must hold; or all that are found.
    fn dependencies(&self, file: &FileTable, table: &FieldTable) -> Result<Dependencies, Failure> {
        if self.dependencies.is_empty() {
            return Ok(Dependencies::discover(table, Dependencies::CELLS_MAX));
        }
        let mut declared = Vec::new();
        for group in &self.dependencies {
            let position = |name: &str| {
                file.column(name).ok_or_else(|| format!("--fd {group}: there is no column `{name}`"))
            };
            let fields: Vec<u16> = group.split(',').map(position).collect::<Result<_, _>>()?;
            declared.extend(Dependency::mutual(&fields));
        }
        let (holding, refused) = Dependencies::verify(table, &declared);
        if let Some(Dependency { determinant, dependent }) = refused.first() {
            let name = |field: &u16| &file.columns[usize::from(*field)];
            let (one, other) = (name(determinant), name(dependent));
            return Err(format!("--fd: rows with the same `{one}` differ in `{other}`").into());
        }
        Ok(holding)
    }

    fn lines(&self, table: &FieldTable, dependencies: &Dependencies) -> OrderLines {
        let stop = match self.stop {
            Stop::Never => EarlyStop::default(),
            Stop::Paper => EarlyStop::of_the_paper(),
        };
        let timed = |name, method, solve: &dyn Fn() -> Reordering| {
            let clock = Clock::start();
            let order = solve();
            let ms = ms(clock);
            TableLine { name, order: BestOrder::weighed(table, method, order), ms }
        };
        let clock = Clock::start();
        let fixed = best_fixed_order(table, &FixedSearch::default());
        let search_ms = ms(clock);
        let mut best_fixed =
            timed(Method::FixedFields.name(), Method::FixedFields, &|| fixed.reordering(table));
        best_fixed.ms += search_ms;
        let mut lines = vec![
            timed(Method::Given.name(), Method::Given, &|| Reordering::original(table)),
            timed(Method::RowsSorted.name(), Method::RowsSorted, &|| sort_rows(table)),
            timed(FIXED, Method::FixedFields, &|| fixed_order(table)),
            best_fixed,
            timed(Method::Ggr.name(), Method::Ggr, &|| ggr(table, dependencies, &stop)),
        ];
        let mut notes = Vec::new();
        if !fixed.is_exact {
            notes.push("best fixed: of part of the fields; a fixed order may reuse more".to_owned());
        }
        if let Some(splits_max) = self.ophr {
            let clock = Clock::start();
            match ophr(table, splits_max) {
                Ok(order) => {
                    let ms = ms(clock);
                    let order = BestOrder::weighed(table, Method::Ggr, order);
                    lines.push(TableLine { name: OPHR, order, ms });
                }
                Err(reason) => notes.push(format!("{OPHR}: {reason}")),
            }
        }
        OrderLines { lines, notes }
    }

    fn table(
        &self,
        out: &mut String,
        file: &FileTable,
        lines: &[TableLine],
        text: (&dyn Tokenizer, Option<&dyn ChatTemplate>),
    ) -> Result<(), Failure> {
        let template = Template::parse(&self.template).map_err(|error| format!("--template: {error}"))?;
        if !template.has_record() {
            return Err("--template: needs `{*}`, where the record stands".into());
        }
        let generation = answer_of(1);
        let question =
            Question { system: self.system.as_deref(), template: &template, generation: &generation };
        let block_tokens = SchedulerConfig::default().block_tokens;
        let config = SchedulerConfig {
            kv_blocks: self.cache_tokens / block_tokens,
            sequences_max: self.at_once,
            ..SchedulerConfig::default()
        };
        let prices = if self.prices.is_empty() { Price::published().to_vec() } else { self.prices.clone() };
        write!(out, "{:<13}{:>16}{:>8}{:>8}{:>10}", "order", "PHC", "cells %", "PHR %", "ms")?;
        for price in &prices {
            write!(out, "{:>12} $  saved", price.name)?;
        }
        writeln!(out)?;
        let mut executor = SimExecutor::new(CostModel::default());
        let mut runner = TableRunner::new(&config, &mut executor)?;
        let mut first = None;
        for line in lines {
            let found = line.order.worth;
            let items =
                file.prompts(&line.order.order, question, text, TokenCount(self.cache_tokens.into()))?;
            let ran = runner.run(items)?;
            let cells = 100.0 * found.reused as f64 / found.total.max(1) as f64;
            write!(
                out,
                "{:<13}{:>16}{cells:>8.1}{:>8.1}{:>10.1}",
                line.name,
                found.hit_count,
                100.0 * ran.hit_rate(),
                line.ms
            )?;
            let costs: Vec<f64> = prices.iter().map(|price| price.of(ran.prompt, ran.hit)).collect();
            let before: &Vec<f64> = first.get_or_insert_with(|| costs.clone());
            for (cost, before) in costs.iter().zip(before) {
                let saved = if *before > 0.0 { 100.0 * (1.0 - cost / before) } else { 0.0 };
                write!(out, "{cost:>14.4}{saved:>6.1}%")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// The fixed order of the fields' statistics, which the exact one is never worse than.
const FIXED: &str = "fixed fields";
/// The exact search, which is bounded by its splits and not by time.
const OPHR: &str = "OPHR";
/// Lines that `order: fields` does not choose from.
const YARDSTICKS: [&str; 2] = [FIXED, OPHR];

fn ms(since: Clock) -> f64 {
    since.now().0 as f64 / 1e6
}

/// The orders of fields that most rows have.
fn summary(out: &mut String, file: &FileTable, plan: &Reordering) -> Result<(), Failure> {
    let mut counts: std::collections::BTreeMap<&[u16], usize> = std::collections::BTreeMap::new();
    for (_, fields) in plan.tuples() {
        *counts.entry(fields).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
    writeln!(out, "\n{} orders of fields; most rows have:", counts.len())?;
    for (fields, rows) in counts.iter().take(ORDERS_SHOWN) {
        let names: Vec<&str> = names(file, fields).collect();
        writeln!(out, "{rows:>8}  {}", names.join(", "))?;
    }
    Ok(())
}

fn names<'a>(file: &'a FileTable, fields: &'a [u16]) -> impl Iterator<Item = &'a str> {
    fields.iter().map(|field| file.columns[usize::from(*field)].as_str())
}

/// Rows are numbered from 0 behind the header, as they lie after `--shuffle` and `--rows`.
fn write_plan(path: &Path, file: &FileTable, plan: &Reordering) -> Result<(), Failure> {
    let mut lines = String::new();
    for (row, fields) in plan.tuples() {
        let fields: Vec<&str> = names(file, fields).collect();
        writeln!(lines, "{}", serde_json::json!({ "row": row, "fields": fields }))?;
    }
    std::fs::write(path, lines).map_err(|error| format!("cannot write {}: {error}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        reorder: Reorder,
    }

    /// Reviews of three films: what repeats stands last.
    fn reviews() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("reviews.csv");
        let row = |i: usize| format!("review {i},a plot of more than a few words {0},film {0}\n", i % 3);
        let rows: String = (0..30).map(row).collect();
        std::fs::write(&path, format!("review,plot,film\n{rows}")).expect("it can be written");
        (folder, path)
    }

    fn run(path: &Path, more: &[&str]) -> Result<String, String> {
        let words = ["reorder", "--input", path.to_str().expect("a plain path")];
        let command = Command::try_parse_from(words.iter().chain(more)).map_err(|error| error.to_string())?;
        let ran = actix_web::rt::System::new().block_on(command.reorder.run(Config::default()));
        ran.map_err(|error| error.to_string())
    }

    /// The figures of a line.
    fn figures(text: &str, name: &str) -> Vec<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line of that name");
        line.split_whitespace().filter_map(|word| word.trim_end_matches('%').parse().ok()).collect()
    }

    #[test]
    fn the_table_says_what_each_order_saves_and_the_plan_is_written() {
        let (folder, path) = reviews();
        let plan = folder.path().join("plan.jsonl");
        let output = plan.to_str().expect("a plain path");
        let text =
            run(&path, &["--ophr", "100000", "--prices", "1:0", "--output", output]).expect("it solves");
        let [original, best, exact] = ["original", "GGR", "OPHR"].map(|name| figures(&text, name));
        assert!(best[0] > original[0] && exact[0] >= best[0], "{text}");
        assert!(best[2] > original[2], "{text}");
        // Uncached tokens cost a dollar a million, cached ones nothing: what is saved is what is hit.
        let missed = |line: &[f64]| 100.0 - line[2];
        let saved = 100.0 * (1.0 - missed(&best) / missed(&original));
        assert!((best[5] - saved).abs() < 0.5, "{text}");
        let plan = std::fs::read_to_string(plan).expect("a plan was written");
        let mut rows: Vec<u64> = Vec::new();
        for line in plan.lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
            rows.push(line["row"].as_u64().expect("a row"));
            assert_eq!(line["fields"].as_array().map(Vec::len), Some(3));
        }
        assert!(
            rows[..10].iter().all(|row| row % 3 == rows[0] % 3),
            "rows of a film stand together: {rows:?}"
        );
        rows.sort_unstable();
        assert_eq!(rows, (0..30).collect::<Vec<_>>());
    }

    /// Pairs of rows share a text and differ in a flag, which by its count wins the greedy choice.
    #[test]
    fn the_plan_is_that_of_the_best_order_where_greed_makes_a_table_worse() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, plan) = (folder.path().join("pairs.csv"), folder.path().join("plan.jsonl"));
        let row = |i: usize| format!("what the rows of pair {} are about,{},{i}\n", i / 2, i % 2);
        let rows: String = (0..400).map(row).collect();
        std::fs::write(&path, format!("text,f,number\n{rows}")).expect("it can be written");
        let output = plan.to_str().expect("a plain path");
        let text = run(&path, &["--lengths", "characters", "--output", output]).expect("it solves");
        let [original, fixed, greedy] = ["original", "best fixed", "GGR"].map(|name| figures(&text, name));
        assert!(greedy[1] < original[1] && fixed[1] >= original[1], "{text}");
        assert!(text.contains("\nbest: original\n"), "{text}");
        let plan = std::fs::read_to_string(plan).expect("a plan was written");
        assert!(plan.starts_with(r#"{"row":0,"fields":["text","f","number"]}"#), "{plan}");
    }

    #[test]
    fn what_cannot_be_is_said_by_name() {
        let (_folder, path) = reviews();
        let cases = [
            (&["--columns", "film,stars"][..], "no column `stars`"),
            (&["--fd", "film,review"], "rows with the same `film` differ in `review`"),
            (&["--fd", "film,star"], "no column `star`"),
            (&["--template", "x"], "--template: needs `{*}`"),
            (&["--prices", "cheap"], "must be openai, anthropic"),
        ];
        for (more, reason) in cases {
            let error = run(&path, more).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
        assert!(
            run(&path, &["--fd", "film,plot", "--columns", "film,plot", "--lengths", "characters"]).is_ok()
        );
    }
}
