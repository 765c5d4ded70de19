//! A scenario: what to send, as TOML with a default for every field.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Error;

/// How long the answers of a relQuery are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerLengths {
    /// `max_tokens` is drawn per relQuery between the task's bounds, and `ignore_eos` makes every row that
    /// long (a relQuery has one `max_tokens` for its rows).
    #[default]
    Drawn,
    /// Every row has the task's largest length, by `ignore_eos`.
    Limit,
    /// The model ends its rows itself, at the latest at the task's largest length.
    Free,
}

/// What to ask about each row.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// Its name in the report.
    pub name: String,
    /// What the prompt begins with; the row's fields follow.
    pub instruction: String,
    /// Shortest answer, in tokens.
    #[serde(default = "one")]
    pub output_min: u32,
    /// Longest answer, in tokens.
    pub output_max: u32,
    /// The answers that are allowed; empty: any text.
    #[serde(default)]
    pub choices: Vec<String>,
}

fn one() -> u32 {
    1
}

/// Where rows come from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TableSpec {
    /// Its name in the report.
    pub name: String,
    /// A CSV file with a header, `.gz` or not; relative to the scenario's file. None: generated reviews.
    pub path: Option<PathBuf>,
    /// Columns to send, in this order; empty: all.
    pub columns: Vec<String>,
    /// Most rows to read or generate.
    pub rows: u32,
    /// Longer cells are cut, in characters.
    pub cell_chars_max: usize,
}

impl Default for TableSpec {
    fn default() -> Self {
        Self { name: "reviews".into(), path: None, columns: Vec::new(), rows: 2_000, cell_chars_max: 600 }
    }
}

/// A scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Decides everything that is drawn.
    pub seed: u64,
    /// How many relQueries.
    pub relqueries: u32,
    /// Mean arrivals per second.
    pub rate_per_s: f64,
    /// Fewest rows of a relQuery.
    pub rows_min: u32,
    /// Most rows of a relQuery.
    pub rows_max: u32,
    /// How long the answers are.
    pub lengths: AnswerLengths,
    /// Sampling temperature.
    pub temperature: f64,
    /// The model to name; none: the server's default (single mode: asked of `/v1/models`).
    pub model: Option<String>,
    /// Whether prompts go through the chat template; none: the server's default.
    pub chat: Option<bool>,
    /// Whether the server may answer from its result cache.
    pub cache: bool,
    /// A relQuery (in single mode: all its rows) that would arrive above this is recorded as not sent.
    pub requests_in_flight_max: u32,
    /// When an answer is given up, counted from the sending.
    pub timeout_ms: u64,
    /// How many made-up handbooks there are. Each relQuery's prompts begin with one of them, so that a prefix
    /// cache has something to keep and a router something to choose by.
    pub handbooks: u32,
    /// How long a handbook is, in characters; 0: prompts begin with the task.
    pub handbook_chars: usize,
    /// The kinds of questions; each relQuery draws one.
    pub tasks: Vec<TaskSpec>,
    /// The tables; each relQuery draws one.
    pub tables: Vec<TableSpec>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            seed: 1,
            relqueries: 100,
            rate_per_s: 1.0,
            rows_min: 1,
            rows_max: 100,
            lengths: AnswerLengths::Drawn,
            temperature: 0.0,
            model: None,
            chat: None,
            cache: false,
            requests_in_flight_max: 20_000,
            timeout_ms: 1_800_000,
            handbooks: 1,
            handbook_chars: 0,
            tasks: paper_tasks(),
            tables: vec![TableSpec::default()],
        }
    }
}

/// The five task types of RelServe (section 6) with their output limits.
fn paper_tasks() -> Vec<TaskSpec> {
    let task = |name: &str, output_max, instruction: &str| TaskSpec {
        name: name.into(),
        instruction: instruction.into(),
        output_min: 1,
        output_max,
        choices: Vec::new(),
    };
    vec![
        task("filter", 5, "Does the row below speak well of its subject? Answer yes or no."),
        task(
            "classify",
            10,
            "Classify the row below as positive, negative or neutral. Answer with one word.",
        ),
        task(
            "rate",
            5,
            "Rate how satisfied the author of the row below is, from 1 to 5. Answer with a number.",
        ),
        task("summarize", 50, "Summarize the row below in one or two sentences."),
        task("open", 100, "Recommend what to do next about the row below, and give your reasons."),
    ]
}

impl Scenario {
    /// Reads and checks a scenario's file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        let mut scenario = Self::parse(&text)?;
        let dir = path.parent().unwrap_or(Path::new("."));
        for file in scenario.tables.iter_mut().filter_map(|table| table.path.as_mut()) {
            *file = dir.join(&file);
        }
        Ok(scenario)
    }

    /// Reads and checks a scenario's text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let scenario: Self = toml::from_str(text)
            .map_err(|error| Error::Scenario { field: "toml".into(), reason: error.to_string() })?;
        scenario.validate()?;
        Ok(scenario)
    }

    /// Names the first field that no run could be made of.
    pub fn validate(&self) -> Result<(), Error> {
        let check = |sound: bool, field: &str, reason: &str| {
            if sound { Ok(()) } else { Err(Error::Scenario { field: field.into(), reason: reason.into() }) }
        };
        check((1..=1_000_000).contains(&self.relqueries), "relqueries", "must be from 1 to 1,000,000")?;
        check(self.rate_per_s.is_finite() && self.rate_per_s > 0.0, "rate_per_s", "must be positive")?;
        check(self.rows_min >= 1, "rows_min", "must be at least 1")?;
        check(self.rows_max >= self.rows_min, "rows_max", "must not be below `rows_min`")?;
        check(self.rows_max <= 100_000, "rows_max", "must not be above 100,000")?;
        check(
            self.temperature.is_finite() && self.temperature >= 0.0,
            "temperature",
            "must not be negative",
        )?;
        check(self.requests_in_flight_max >= 1, "requests_in_flight_max", "must be at least 1")?;
        check(self.timeout_ms >= 1, "timeout_ms", "must be at least 1")?;
        check((1..=10_000).contains(&self.handbooks), "handbooks", "must be from 1 to 10,000")?;
        check(self.handbook_chars <= 1_000_000, "handbook_chars", "must not be above 1,000,000")?;
        check(!self.tasks.is_empty(), "tasks", "must not be empty")?;
        check(!self.tables.is_empty(), "tables", "must not be empty")?;
        for (i, task) in self.tasks.iter().enumerate() {
            check(task.output_min >= 1, &format!("tasks[{i}].output_min"), "must be at least 1")?;
            let sound = task.output_max >= task.output_min;
            check(sound, &format!("tasks[{i}].output_max"), "must not be below `output_min`")?;
        }
        for (i, table) in self.tables.iter().enumerate() {
            check(table.rows >= 1, &format!("tables[{i}].rows"), "must be at least 1")?;
            check(table.cell_chars_max >= 1, &format!("tables[{i}].cell_chars_max"), "must be at least 1")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_papers_scenario() {
        let scenario = Scenario::parse("").expect("sound");
        assert_eq!((scenario.relqueries, scenario.rows_min, scenario.rows_max), (100, 1, 100));
        let limits: Vec<_> =
            scenario.tasks.iter().map(|task| (task.name.as_str(), task.output_max)).collect();
        assert_eq!(limits, [("filter", 5), ("classify", 10), ("rate", 5), ("summarize", 50), ("open", 100)]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("relqueries = 0", "`relqueries`"),
            ("rate_per_s = 0.0", "`rate_per_s`"),
            ("rate_per_s = nan", "`rate_per_s`"),
            ("rows_min = 5\nrows_max = 4", "`rows_max`"),
            ("speed = 3", "speed"),
            ("lengths = \"long\"", "lengths"),
            ("seed = -1", "seed"),
            ("tasks = []", "`tasks`"),
            ("handbooks = 0", "`handbooks`"),
            ("handbook_chars = 1000001", "`handbook_chars`"),
            ("[[tasks]]\nname = \"x\"\ninstruction = \"y\"\noutput_max = 0", "`tasks[0].output_max`"),
            ("[[tables]]\ncolumn = 3", "column"),
        ];
        for (text, field) in cases {
            let error = Scenario::parse(text).expect_err(text).to_string();
            assert!(error.contains(field), "{text}: {error}");
        }
    }

    #[test]
    fn the_shipped_scenarios_are_sound() {
        for name in ["paper", "paper-60m", "paper-125m", "replicas", "smoke", "race", "race-choice"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(format!("{name}.toml"));
            Scenario::load(&path).expect(name);
        }
    }
}
