//! `relserve eval quality`: what modules, spans, reordered fields, fewer bits, tokens guessed ahead and
//! constraints do to a model's answers on small real tasks, with intervals.
//!
//! Servers in this process get every task over HTTP, greedily, once as plain prompts (the baseline) and once
//! for each variant; rows are paired, so that what differs is the variant. No figure is judged here.

mod bootstrap;
mod data;
mod measures;
mod requests;
mod table;
mod tasks;
mod variants;

use std::path::{Path, PathBuf};

use base::Bytes;
use gateway::config::Config;
use serde_json::{Value, json};

use self::data::TaskData;
use self::requests::answers;
use self::table::{Line, VariantAnswers};
use self::tasks::{EvalTask, TASKS, TaskSizes};
use self::variants::{EngineSetting, EvalVariant, VARIANTS};
use crate::bench::BenchError;
use crate::bench::server::{BenchServer, saying_anything};

/// Rows of a task where nobody says how many.
const ROWS: u32 = 24;
/// Bytes of a request: all rows of a task come at once.
const BODY_BYTES_MAX: Bytes = Bytes(256 << 20);

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct QualityArgs {
    /// A folder of tables: movies, products, beer and squad, those that are there; each NAME.csv, NAME.csv.gz, or a
    /// folder NAME with such a file (of several the largest) [default: small tables of the program's own].
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Rows of a task; of those with many documents half (rag) or an eighth (needle).
    #[arg(long, default_value_t = ROWS, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub rows: u32,
    /// Only these tasks and variants, separated by commas; the baseline always runs [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub only: Vec<String>,
    /// Which rows and documents are drawn, and how intervals are.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Most tokens of the documents around the needle; the context bounds them too.
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    pub needle_tokens: u32,
    /// Where every line and answer is written, as JSON; without it they are not kept.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Default for QualityArgs {
    fn default() -> Self {
        Self { data: None, rows: ROWS, only: Vec::new(), seed: 1, needle_tokens: 4_096, json: None }
    }
}

/// What was found.
struct QualityReport {
    model: String,
    tasks: Vec<EvalTask>,
    runs: Vec<VariantAnswers>,
    /// What did not run, and why; and what the figures do not say.
    notes: Vec<String>,
}

/// Puts the tasks to the configured model and says the table.
pub async fn measure(
    config: &Config,
    args: &QualityArgs,
    say: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let (names, variants) = chosen(&args.only)?;
    let source = TaskData::open(args.data.as_deref())?;
    let mut measured =
        QualityReport { model: String::new(), tasks: Vec::new(), runs: Vec::new(), notes: Vec::new() };
    for (at, variant) in variants.iter().enumerate() {
        let setting = variant.setting;
        if at > 0 && variants[at - 1].setting == setting {
            continue; // its server has run
        }
        let of_setting: Vec<&'static EvalVariant> =
            variants.iter().copied().filter(|variant| variant.setting == setting).collect();
        match run_setting(config, args, (source, &names), &of_setting, &mut measured).await {
            Err(error) if at > 0 => measured.notes.push(format!("{}: {error}", variant.name)),
            ran => ran?,
        }
    }
    let lines = table::lines(&measured.tasks, &measured.runs, args.seed);
    say(&measured.model);
    say(&table::markdown(&lines));
    for note in &measured.notes {
        say(&format!("- {note}"));
    }
    if let Some(file) = &args.json {
        std::fs::write(file, json_of(args, &measured, &lines).to_string()).map_err(BenchError::file(file))?;
    }
    Ok(())
}

/// Runs the variants of one setting on a server of their own.
async fn run_setting(
    config: &Config,
    args: &QualityArgs,
    (source, names): (TaskData<'_>, &[&'static str]),
    variants: &[&'static EvalVariant],
    measured: &mut QualityReport,
) -> Result<(), BenchError> {
    let setting = variants[0].setting;
    let mut config = setting.configured(&saying_anything(config));
    config.limits.tenant_schemas_max = config.limits.tenant_schemas_max.max(u64::from(args.rows));
    config.limits.tenant_schemas_bytes_max = Bytes(i64::MAX as u64);
    config.limits.body_bytes_max = config.limits.body_bytes_max.max(BODY_BYTES_MAX);
    let folder = tempfile::tempdir().map_err(BenchError::file(Path::new("a temporary folder")))?;
    let server = BenchServer::start(config, folder.path(), None).await?;
    if measured.tasks.is_empty() {
        let model = server.loaded_model();
        let sizes = TaskSizes {
            rows: args.rows as usize,
            needle_tokens: args.needle_tokens as usize,
            seed: args.seed,
            context: usize::try_from(model.context_max.0).unwrap_or(usize::MAX),
            tokenizer: &*model.text,
        };
        let (found, missing) = tasks::tasks(source, names, &sizes)?;
        if found.is_empty() {
            return Err(BenchError::Case(missing.join("; ")));
        }
        (measured.tasks, measured.notes) = (found, missing);
        measured.model = server.model();
    }
    for variant in variants {
        for (number, task) in measured.tasks.iter().enumerate().filter(|(_, task)| variant.bears(task)) {
            match answers(&server, task, variant).await {
                Ok(answers) => measured.runs.push(VariantAnswers { task: number, variant, answers }),
                // Without it there is nothing to compare with.
                Err(error) if variant.name == VARIANTS[0].name => return Err(error),
                Err(error) => {
                    measured.notes.push(format!("{}, {}: not run: {error}", task.name, variant.name));
                }
            }
            tracing::info!(task = task.name, variant = variant.name, rows = task.rows.len(), "measured");
        }
    }
    if setting == EngineSetting::Speculation {
        let drafted = server.counter("relserve_draft_tokens_total").await?;
        let accepted = server.counter("relserve_accepted_tokens_total").await?;
        measured
            .notes
            .push(format!("speculation: {drafted} tokens were guessed ahead, {accepted} of them right"));
    }
    server.end().await;
    Ok(())
}

/// The tasks and variants of these names; all of a kind of which none is named. The baseline is first.
fn chosen(only: &[String]) -> Result<(Vec<&'static str>, Vec<&'static EvalVariant>), BenchError> {
    let named = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    let known = || TASKS.into_iter().chain(VARIANTS.iter().map(|variant| variant.name));
    if let Some(unknown) = only.iter().find(|one| !known().any(|name| name == one.as_str())) {
        let known: Vec<&str> = known().collect();
        return Err(BenchError::Case(format!(
            "--only: there is no task or variant `{unknown}`, but {}",
            known.join(", ")
        )));
    }
    let tasks: Vec<&str> = TASKS.into_iter().filter(|name| named(name)).collect();
    let variants: Vec<&EvalVariant> = VARIANTS.iter().filter(|variant| named(variant.name)).collect();
    let tasks = if tasks.is_empty() { TASKS.to_vec() } else { tasks };
    let all = || VARIANTS.iter().collect();
    let mut variants: Vec<&EvalVariant> = if variants.is_empty() { all() } else { variants };
    if variants[0].name != VARIANTS[0].name {
        variants.insert(0, &VARIANTS[0]);
    }
    Ok((tasks, variants))
}

fn json_of(args: &QualityArgs, measured: &QualityReport, lines: &[Line]) -> Value {
    let row = |run: &VariantAnswers, number: usize| {
        let (task, answer) = (&measured.tasks[run.task], &run.answers[number]);
        let row = &task.rows[number];
        let score = task.measure.score(&row.accepted, answer.as_deref().ok()).main();
        json!({ "task": task.name, "variant": run.variant.name, "row": number, "record": row.cells,
            "question": row.question, "documents": row.documents.len(), "accepted": row.accepted,
            "answer": answer.as_ref().ok(), "error": answer.as_ref().err(), "score": score })
    };
    let answers: Vec<Value> = measured
        .runs
        .iter()
        .flat_map(|run| (0..run.answers.len()).map(move |number| row(run, number)))
        .collect();
    json!({ "model": measured.model, "rows": args.rows, "seed": args.seed, "lines": lines,
        "notes": measured.notes, "answers": answers })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(args: &QualityArgs) -> Result<String, String> {
        let mut printed = String::new();
        let measured = measure(&Config::default(), args, &mut |line| printed += &format!("{line}\n")).await;
        measured.map(|()| printed).map_err(|error| error.to_string())
    }

    #[actix_web::test]
    async fn the_demo_model_is_measured_in_every_variant_and_the_same_each_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("answers.json");
        let args = QualityArgs { rows: 4, json: Some(file.clone()), ..QualityArgs::default() };
        let table = run(&args).await.expect("it runs");
        for variant in VARIANTS {
            assert!(table.contains(&format!("| {} |", variant.name)), "{}: {table}", variant.name);
        }
        assert!(table.contains("- classify-beer: not run: there is no table beer"), "{table}");
        assert!(table.contains("tokens were guessed ahead"), "{table}");
        let found: Value =
            serde_json::from_str(&std::fs::read_to_string(&file).expect("it is written")).expect("JSON");
        let lines = found["lines"].as_array().expect("lines");
        let of = |task: &str, variant: &str| {
            lines.iter().find(|line| line["task"] == task && line["variant"] == variant).expect("it ran")
        };
        // The demo model was trained on labels: what differs must be compared with answers that mean something.
        let accuracy = of("classify-products", "constraints")["accuracy"]["mean"].as_f64().expect("a share");
        assert!(accuracy >= 0.5, "{table}");
        assert_eq!(of("classify-products", "baseline")["failed"], 0);
        assert_eq!(
            of("qa", "spans")["same_text"],
            1.0,
            "a plus of one document is the exact prompt: {table}"
        );
        let answers = found["answers"].as_array().expect("answers");
        let apart = answers.iter().filter(|row| row["task"] == "few-shot" && row["variant"] == "spans");
        assert_eq!(apart.count(), 4);
        let only = vec!["qa".to_owned(), "modules".to_owned()];
        let again = run(&QualityArgs { only, json: None, ..args }).await.expect("it runs");
        let line =
            |text: &str| text.lines().find(|line| line.starts_with("| qa | modules ")).map(str::to_owned);
        assert_eq!(line(&table), line(&again), "one seed, one table");
        assert!(line(&table).is_some() && !again.contains("| q8 |"), "{again}");
    }

    #[actix_web::test]
    async fn what_cannot_be_measured_is_named() {
        let only = vec!["qa".to_owned(), "q5".to_owned()];
        let error = run(&QualityArgs { only, ..QualityArgs::default() }).await.expect_err("there is none");
        assert!(
            error.starts_with("--only: there is no task or variant `q5`, but classify-movies, "),
            "{error}"
        );
        let folder = tempfile::tempdir().expect("a folder");
        let data = Some(folder.path().to_owned());
        let error = run(&QualityArgs { data, ..QualityArgs::default() }).await.expect_err("it is empty");
        assert!(error.contains("has no table: none of movies"), "{error}");
        std::fs::write(folder.path().join("beer.csv"), "beer/name\nPils\n").expect("it is written");
        let data = Some(folder.path().to_owned());
        let error =
            run(&QualityArgs { data, ..QualityArgs::default() }).await.expect_err("columns are missing");
        assert!(error.contains("beer.csv: there is no column `review/profileName`"), "{error}");
    }
}
