//! What `relserve batch` is told, and the relQuery that it sends.

use std::path::PathBuf;

use clap::Args;
use gateway::wire::sampling::Absent;
use ir::Template;
use serde_json::{Map, Value, json};

use super::Failure;
use crate::input::TableArgs;
use crate::terminal::with_default;

/// Runs a prompt template over every row of a table and writes the table with a column of answers.
///
/// A job that was stopped or killed goes on when the same command is run again.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub source: TableArgs,
    /// The prompt, with {column} where a cell goes and {*} for all other columns; @FILE reads it from a file.
    #[arg(long)]
    pub template: String,
    /// Instructions before it [default: none]; @FILE reads them from a file.
    #[arg(long)]
    pub system: Option<String>,
    /// A .csv, .tsv, .jsonl or .parquet file to write.
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// What to call the column of answers.
    #[arg(long, default_value = "output")]
    pub output_column: String,
    /// What to call the column of row numbers, which count from 1.
    #[arg(long, default_value = "row")]
    pub row_column: String,
    /// Writes answers into .csv and .tsv files as they are. Without it one that a spreadsheet would take for a
    /// formula has an apostrophe before it.
    #[arg(long)]
    pub raw: bool,
    /// A running server, such as http://127.0.0.1:8080; without it the model is loaded into this process.
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// The server's API key [default: none is sent]; @FILE reads it from a file.
    #[arg(long)]
    pub key: Option<String>,
    /// The model in this process, a Hugging Face folder or a GGUF file; without it that of the configuration,
    /// or else the built-in demo model.
    #[arg(long, conflicts_with = "server")]
    pub model: Option<PathBuf>,
    /// Most tokens of an answer.
    #[arg(long, help = with_default("Most tokens of an answer", Absent::default().max_tokens))]
    pub max_tokens: Option<u64>,
    /// 0 is greedy.
    #[arg(long, help = with_default("0 is greedy", Absent::default().temperature))]
    pub temperature: Option<f64>,
    /// Keeps the most likely tokens whose probabilities sum to this.
    #[arg(
        long,
        help = with_default(
            "Keeps the most likely tokens whose probabilities sum to this", Absent::default().top_p
        )
    )]
    pub top_p: Option<f64>,
    /// Keeps this many most likely tokens [default: all].
    #[arg(long)]
    pub top_k: Option<u64>,
    /// Makes answers above temperature 0 repeatable [default: another for each row].
    #[arg(long)]
    pub seed: Option<u64>,
    /// Text that ends an answer; may be given several times.
    #[arg(long)]
    pub stop: Vec<String>,
    /// An answer that is allowed; given several times, answers are one of these.
    #[arg(long, group = "constraint")]
    pub choice: Vec<String>,
    /// Answers are integers from MIN to MAX; without it, --choice, --regex or --json-schema any text will do.
    #[arg(long, value_name = "MIN..MAX", group = "constraint")]
    pub integer: Option<String>,
    /// Answers match this regular expression; without it see --integer.
    #[arg(long, group = "constraint")]
    pub regex: Option<String>,
    /// Answers are JSON that fits the schema in this file; without it see --integer.
    #[arg(long, value_name = "FILE", group = "constraint")]
    pub json_schema: Option<PathBuf>,
    /// Answers are computed even where the server knows them.
    #[arg(long)]
    pub no_cache: bool,
    /// What may be moved so that neighbours share more [default: rows]: fields too, where the caller says
    /// that their order in a record says nothing; or exact: rows go to the scheduler as they were sent.
    #[arg(long, value_parser = ["exact", "rows", "fields"])]
    pub order: Option<String>,
    /// Columns that determine each other, with commas between them, for --order fields; may be given several
    /// times. Used where the rows bear it out. Without it dependencies are looked for.
    #[arg(long = "fd", value_name = "COLUMNS")]
    pub dependencies: Vec<String>,
    /// Whether the chat template frames the prompt [default: where the model has one].
    #[arg(long)]
    pub chat: Option<bool>,
    /// Forgets a job of this output that was begun, and overwrites the output.
    #[arg(long)]
    pub restart: bool,
    /// Runs the rows again that failed, and no others.
    #[arg(long, conflicts_with = "restart")]
    pub retry_errors: bool,
    /// Rows of one request.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub rows_per_request: u64,
    /// Requests under way at once.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub requests: u64,
    /// Rows held back to find those with a common prefix; with --order fields, rows that are ordered together.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub buffer_rows: u64,
    /// Seconds for which a server that stops answering is tried again; one that cannot be reached at all ends
    /// the command at once.
    #[arg(long, default_value_t = 60)]
    pub patience: u64,
}

/// A value, or what stands in the file that it names.
fn text_of(value: &str, option: &str) -> Result<String, Failure> {
    match value.strip_prefix('@') {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            Ok(text.map_err(|error| format!("--{option}: cannot read {path}: {error}"))?)
        }
        None => Ok(value.to_owned()),
    }
}

impl Options {
    /// The template, understood.
    pub(super) fn template(&self) -> Result<Template, Failure> {
        let text = text_of(&self.template, "template")?;
        Template::parse(&text).map_err(|error| format!("--template: {error}").into())
    }

    /// Whether the rows and fields of the table are ordered here, window by window.
    pub(super) fn orders_fields(&self) -> bool {
        self.order.as_deref() == Some("fields")
    }

    /// The groups of columns that determine each other; each must be in the record.
    pub(super) fn dependencies(
        &self,
        template: &Template,
        sent: &[String],
    ) -> Result<Vec<Vec<String>>, Failure> {
        if self.orders_fields() && !template.has_record() {
            return Err("--order fields: needs `{*}` in the template".into());
        }
        if !self.orders_fields() && !self.dependencies.is_empty() {
            return Err("--fd: is for --order fields".into());
        }
        let mut groups = Vec::new();
        for group in &self.dependencies {
            let names: Vec<String> = group.split(',').map(str::to_owned).collect();
            let is_entry = |name: &String| sent.contains(name) && !template.fields().contains(&name.as_str());
            if let Some(missing) = names.iter().find(|name| !is_entry(name)) {
                return Err(format!("--fd {group}: `{missing}` is no column of the record").into());
            }
            groups.push(names);
        }
        Ok(groups)
    }

    /// The key, where there is one.
    pub(super) fn key(&self) -> Result<Option<String>, Failure> {
        let key = self.key.as_deref().map(|key| text_of(key, "key")).transpose()?;
        Ok(key.map(|key| key.trim().to_owned()))
    }

    /// The relQuery without its rows: the same for all of them.
    pub(super) fn request(
        &self,
        template: &Template,
        columns: &[String],
    ) -> Result<Map<String, Value>, Failure> {
        let system = self.system.as_deref().map(|text| text_of(text, "system")).transpose()?;
        let request = json!({
            "template": template.to_string(),
            "system": system,
            "columns": columns,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "seed": self.seed,
            "stop": (!self.stop.is_empty()).then_some(&self.stop),
            "constraint": self.constraint()?,
            "cache": !self.no_cache,
            "chat": self.chat,
            // Rows that are ordered here are to stay so.
            "order": if self.orders_fields() { Some("sent") } else { self.order.as_deref() },
            "class": "bulk",
        });
        match request {
            Value::Object(fields) => Ok(fields.into_iter().filter(|(_, value)| !value.is_null()).collect()),
            _ => Err("a request is an object".into()),
        }
    }

    fn constraint(&self) -> Result<Option<Value>, Failure> {
        if !self.choice.is_empty() {
            return Ok(Some(json!({ "choice": self.choice })));
        }
        if let Some(range) = &self.integer {
            let ends = range.split_once("..").and_then(|(min, max)| {
                Some((min.trim().parse::<i64>().ok()?, max.trim().parse::<i64>().ok()?))
            });
            let Some((min, max)) = ends else {
                return Err("--integer: must be MIN..MAX, two integers such as 1..5".into());
            };
            return Ok(Some(json!({ "integer": { "min": min, "max": max } })));
        }
        if let Some(pattern) = &self.regex {
            return Ok(Some(json!({ "regex": pattern })));
        }
        let Some(path) = &self.json_schema else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("--json-schema: cannot read {}: {error}", path.display()))?;
        let schema: Value = serde_json::from_str(&text)
            .map_err(|error| format!("--json-schema: {} is not JSON: {error}", path.display()))?;
        Ok(Some(json!({ "json_schema": schema })))
    }
}
