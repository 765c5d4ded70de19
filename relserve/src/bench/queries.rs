//! `relserve bench queries`: the 16 queries of the GGR paper over real tables, end to end on this machine's
//! engine.
//!
//! Three ways, as in the paper's figures 3 and 4: no cache; a cache, rows and fields as they lie; a cache,
//! and the best order found (`ir::reorder::best_order`). Time runs from the table in memory to the last token: counting lengths,
//! solving, tokenizing, steps. Each answer has the paper's mean length whatever the model says, so all ways
//! do the same work.

mod retrieve;
mod suite;

use std::path::PathBuf;

use base::{ChatTemplate, TokenCount, Tokenizer};
use engine::{Engine, ModelText};
use gateway::config::Config;
use ir::reorder::{Dependencies, EarlyStop, Reordering, best_order};
use ir::{Cell, Template};
use scheduler::SchedulerConfig;
use serving::clock::Clock;
use serving::load;
use suite::{Suite, SuiteQuery};

use super::BenchError;
use crate::tables::{FileTable, Question, Sharing, TableError, TableRunner, answer_of};

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Tables {
    /// The folder of CSV files: movies.csv, products.csv, bird.csv, pdmx.csv, beer.csv, squad.csv.
    #[arg(long)]
    data: PathBuf,
    /// Rows of each table.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rows: u32,
    /// Only queries whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
    /// Tokens of the KV pool that are used; rows that run have to fit too.
    #[arg(long)]
    cache_tokens: Option<u32>,
    /// What shuffled files are shuffled by.
    #[arg(long, default_value_t = 7)]
    seed: u64,
}

/// A way of running a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    NoCache,
    Original,
    Ordered,
}

const WAYS: [Way; 3] = [Way::NoCache, Way::Original, Way::Ordered];

/// What one way came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Took {
    seconds: f64,
    prompt: u64,
    hit: u64,
}

impl Took {
    fn hit_rate(&self) -> f64 {
        100.0 * self.hit as f64 / self.prompt.max(1) as f64
    }
}

/// Runs the suite on the configured model; each line is said as soon as it is known.
pub fn measure(config: &Config, tables: &Tables, say: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let engine = load::load(config.backend())?;
    let model = load::model_of(&engine, config.backend(), Clock::start());
    let Engine { mut executor, text, info, .. } = engine;
    let blocks = tables.cache_tokens.map_or(info.kv_blocks, |tokens| tokens / info.block_tokens);
    let settings = SchedulerConfig {
        kv_blocks: blocks.min(info.kv_blocks),
        block_tokens: info.block_tokens,
        ..config.scheduler.clone()
    };
    say(&format!(
        "{}: {}; KV pool of {} tokens",
        model.name,
        model.description,
        settings.kv_blocks * info.block_tokens
    ));
    say(&format!(
        "{:<22}{:>5}{:>7}{:>8}{:>11}{:>11}{:>9}{:>10}{:>8}{:>11}{:>11}",
        "query",
        "type",
        "rows",
        "tokens",
        "no cache s",
        "original s",
        "best s",
        "orig PHR",
        "best PHR",
        "x original",
        "x no cache"
    ));
    let suite = Suite::built_in();
    let runner = TableRunner::new(&settings, &mut executor)?;
    let context_max = TokenCount(model.context_max.0.min(model.kv_tokens()));
    let mut bench = QueriesBench { runner, text: &text, suite: &suite, context_max };
    for query in suite.query.iter().filter(|query| query.name.contains(&tables.only)) {
        let source = &suite.table[&query.table];
        match source.read(&tables.data, tables.rows as usize, tables.seed) {
            Ok(table) => say(&bench.query(query, table)?),
            Err(TableError::File { file, error }) => {
                say(&format!("{:<22}{:>5}  left out: {}: {error}", query.name, query.kind, file.display()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

struct QueriesBench<'a> {
    runner: TableRunner<'a>,
    text: &'a ModelText,
    suite: &'a Suite,
    context_max: TokenCount,
}

impl QueriesBench<'_> {
    /// A query each way; its line.
    fn query(&mut self, query: &SuiteQuery, mut table: FileTable) -> Result<String, BenchError> {
        let mut took = [Took::default(); WAYS.len()];
        let mut prompts = 0;
        for (number, stage) in query.stage.iter().enumerate() {
            if number > 0 {
                // What a filter lets through is a model's affair; how fast it is, is not.
                table.rows = table.rows.into_iter().step_by(2).collect();
            }
            let asked = if stage.fields.is_empty() { table.clone() } else { table.select(&stage.fields)? };
            // The question is text of the template, braces and all.
            let question = stage.prompt.replace('{', "{{").replace('}', "}}");
            let template = format!("Answer the below query:\n{question}\n\nGiven the following data:\n{{*}}");
            let template = Template::parse(&template).map_err(|error| BenchError::Case(error.to_string()))?;
            let asked = self.fitting(asked, &template, stage.output)?;
            prompts += asked.rows.len();
            for (way, took) in WAYS.into_iter().zip(&mut took) {
                let clock = Clock::start();
                let ran = self.stage(way, &asked, &template, stage.output)?;
                took.seconds += clock.now().0 as f64 / 1e9;
                took.prompt += ran.prompt;
                took.hit += ran.hit;
            }
        }
        let [none, original, best] = took;
        Ok(format!(
            "{:<22}{:>5}{prompts:>7}{:>8}{:>11.2}{:>11.2}{:>9.2}{:>9.1}%{:>7.1}%{:>11.2}{:>11.2}",
            query.name,
            query.kind,
            none.prompt / prompts.max(1) as u64,
            none.seconds,
            original.seconds,
            best.seconds,
            original.hit_rate(),
            best.hit_rate(),
            original.seconds / best.seconds,
            none.seconds / best.seconds,
        ))
    }

    fn stage(
        &mut self,
        way: Way,
        table: &FileTable,
        template: &Template,
        output: u64,
    ) -> Result<crate::tables::Ran, TableError> {
        let fields = table.interned(&|texts| self.text.count_stretches(texts))?;
        let order = match way {
            Way::NoCache | Way::Original => Reordering::original(&fields),
            Way::Ordered => {
                let dependencies = Dependencies::discover(&fields, Dependencies::CELLS_MAX);
                best_order(&fields, &dependencies, &EarlyStop::default()).order
            }
        };
        let items = self.prompts(table, &order, template, output)?;
        self.runner.run(items, if way == Way::NoCache { Sharing::Nothing } else { Sharing::Prefixes })
    }

    fn prompts(
        &self,
        table: &FileTable,
        order: &Reordering,
        template: &Template,
        output: u64,
    ) -> Result<Vec<base::WorkItem>, TableError> {
        let chat: Option<&dyn ChatTemplate> =
            if self.text.has_chat_template() { Some(self.text) } else { None };
        let generation = answer_of(output);
        let question = Question { system: Some(&self.suite.system), template, generation: &generation };
        table.prompts(order, question, (self.text, chat), self.context_max)
    }

    /// The rows whose prompts have room in the model's context, whatever the order of their fields.
    fn fitting(
        &self,
        mut table: FileTable,
        template: &Template,
        output: u64,
    ) -> Result<FileTable, TableError> {
        // Tokens join a little differently in another order.
        const SPARE: u64 = 64;
        let mut kept: Vec<Vec<Cell>> = Vec::with_capacity(table.rows.len());
        for row in std::mem::take(&mut table.rows) {
            let alone = FileTable { columns: table.columns.clone(), rows: vec![row] };
            let order = Reordering::original(&alone.interned(&|texts| vec![0; texts.len()])?);
            match self.prompts(&alone, &order, template, output + SPARE) {
                Ok(_) => kept.extend(alone.rows),
                Err(TableError::Row { problem: ir::RowProblem::TooLong { .. }, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        table.rows = kept;
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reviews that begin with what differs: no two rows share more than the question until fields are
    /// ordered.
    fn reviews() -> String {
        let plot =
            "A long description of the film that many people saw and that some of them liked very much.";
        let row = |i: usize| format!("great film number {i},{plot} {},Drama\n", i % 3);
        "review_content,movie_info,genres\n".to_owned() + &(0..24).map(row).collect::<String>()
    }

    #[test]
    fn ordered_fields_hit_more_and_all_ways_do_the_same_work() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("movies.csv"), reviews()).expect("it can be written");
        let tables = Tables {
            data: folder.path().into(),
            rows: 12,
            only: "movies".into(),
            cache_tokens: None,
            seed: 1,
        };
        let mut lines = Vec::new();
        measure(&Config::default(), &tables, &mut |line| lines.push(line.to_owned()))
            .expect("the demo model runs");
        assert_eq!(lines.len(), 2 + 4, "{lines:?}");
        let figures = |line: &str| -> Vec<f64> {
            line.split_whitespace().filter_map(|word| word.trim_end_matches('%').parse().ok()).collect()
        };
        for line in &lines[2..] {
            let [rows, tokens, .., original, ggr, _, _] = figures(line)[..] else { panic!("{line}") };
            assert_eq!(rows, if line.starts_with("multi") { 18.0 } else { 12.0 }, "{line}");
            assert!(tokens > 50.0 && ggr > original, "{line}");
        }
    }

    #[test]
    fn a_table_that_is_not_there_is_left_out_and_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let tables =
            Tables { data: folder.path().into(), rows: 2, only: "rag".into(), cache_tokens: None, seed: 1 };
        let mut lines = Vec::new();
        measure(&Config::default(), &tables, &mut |line| lines.push(line.to_owned()))
            .expect("nothing to run");
        assert!(lines[2..].iter().all(|line| line.contains("left out")), "{lines:?}");
    }
}
