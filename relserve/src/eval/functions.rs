//! `relserve eval functions`: how good the cell functions' answers are, on small tables of calls with known
//! answers, one per function (`functions/*.jsonl`, written for this and in nobody's training data).
//!
//! A server in this process gets the calls over HTTP in four ways: the bare prompt, answers held to their form,
//! examples before each call, and labels calibrated too. No figure is judged here.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use gateway::config::Config;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bench::BenchError;
use crate::bench::server::BenchServer;

/// The tables that this program was built with.
const TABLES: [(&str, &str); 11] = [
    ("ask", include_str!("functions/ask.jsonl")),
    ("classify", include_str!("functions/classify.jsonl")),
    ("edit", include_str!("functions/edit.jsonl")),
    ("extract", include_str!("functions/extract.jsonl")),
    ("fill", include_str!("functions/fill.jsonl")),
    ("format", include_str!("functions/format.jsonl")),
    ("list", include_str!("functions/list.jsonl")),
    ("rate", include_str!("functions/rate.jsonl")),
    ("summarize", include_str!("functions/summarize.jsonl")),
    ("tag", include_str!("functions/tag.jsonl")),
    ("translate", include_str!("functions/translate.jsonl")),
];

/// How calls are put to the model: the name, and whether with constraints, examples and calibration.
const WAYS: [(&str, [bool; 3]); 4] = [
    ("plain", [false, false, false]),
    ("form", [true, false, false]),
    ("examples", [true, true, false]),
    ("calibrated", [true, true, true]),
];

/// Of a normal distribution, for 95 of 100.
const QUANTILE: f64 = 1.96;

/// What is measured.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct FunctionsArgs {
    /// Only these functions, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// A folder of tables of your own, FUNCTION.jsonl each, with `{"args": [..], "expect": ..}` in each line: what
    /// `POST /v1/cells` takes, and the answer, or a list of which one has to be in the answer (ask) or all items
    /// have to be (list) [default: those of the program].
    #[arg(long)]
    pub tables: Option<PathBuf>,
    /// Asks 35 questions as people ask them of a sheet, of every function, and says the answers; nobody scores these
    /// but who reads them.
    #[arg(long)]
    pub questions: bool,
    /// Where every answer is written, JSON in each line [default: nowhere].
    #[arg(long)]
    pub answers: Option<PathBuf>,
}

/// A call with its answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScoredCall {
    args: Vec<Value>,
    #[serde(default)]
    expect: Value,
}

/// A question, as `POST /v1/cells` takes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SheetQuestion {
    function: String,
    args: Vec<Value>,
}

/// What a function's answers came to.
#[derive(Clone, Debug, PartialEq)]
struct FunctionScores {
    function: String,
    rows: usize,
    /// The mean of each way's scores, 0 to 1, and half the width of its interval.
    ways: [(f64, f64); WAYS.len()],
}

/// Runs the tables on the configured model and says the table.
pub async fn measure(
    config: &Config,
    args: &FunctionsArgs,
    say: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let tables = tables(args)?;
    let folder = tempfile::tempdir().map_err(BenchError::file(Path::new("a temporary folder")))?;
    let server = BenchServer::start(config.clone(), folder.path(), None).await?;
    say(&server.model());
    if args.questions {
        for SheetQuestion { function, args } in questions()? {
            let cell =
                &post(&server, vec![json!({ "function": function, "args": args })], [true; 3]).await?[0];
            let answer = cell.get("value").unwrap_or(&cell["error"]["message"]);
            say(&format!("{function:<10} {} => {answer}", Value::from(args)));
        }
        server.end().await;
        return Ok(());
    }
    let mut scores = Vec::new();
    let mut answers = String::new();
    for (function, items) in &tables {
        let mut ways = [(0.0, 0.0); WAYS.len()];
        for ((name, aids), found) in WAYS.into_iter().zip(&mut ways) {
            let calls = items.iter().map(|item| json!({ "function": function, "args": item.args }));
            let cells = post(&server, calls.collect(), aids).await?;
            let row_scores: Vec<f64> =
                items.iter().zip(&cells).map(|(item, cell)| score(function, item, &cell["value"])).collect();
            *found = interval(&row_scores);
            for ((item, cell), score) in items.iter().zip(&cells).zip(row_scores) {
                let line = json!({ "function": function, "way": name, "args": item.args, "expect": item.expect,
                    "answer": cell.get("value").unwrap_or(&cell["error"]["message"]), "score": score });
                writeln!(answers, "{line}").expect("a string takes all that is written");
            }
        }
        tracing::info!(function, "measured");
        scores.push(FunctionScores { function: function.clone(), rows: items.len(), ways });
    }
    server.end().await;
    if let Some(file) = &args.answers {
        std::fs::write(file, answers).map_err(BenchError::file(file))?;
    }
    say(&text(&scores));
    Ok(())
}

async fn post(
    server: &BenchServer,
    calls: Vec<Value>,
    [constraints, examples, calibration]: [bool; 3],
) -> Result<Vec<Value>, BenchError> {
    let count = calls.len();
    // Left out where it is off: asked for, it is refused where it cannot be had.
    let mut guidance = json!({ "constraints": constraints, "examples": examples });
    if !calibration {
        guidance["calibration"] = json!(false);
    }
    let body = json!({ "calls": calls, "cache": false, "guidance": guidance });
    let reply = server.post("/v1/cells", &body).await?;
    let reply: Value = serde_json::from_str(&reply.lines.join("\n"))
        .map_err(|error| BenchError::Case(format!("/v1/cells: {error}")))?;
    match reply["cells"].as_array() {
        Some(cells) if cells.len() == count => Ok(cells.clone()),
        _ => Err(BenchError::Case(format!("/v1/cells has no cell for each call: {reply}"))),
    }
}

fn tables(args: &FunctionsArgs) -> Result<Vec<(String, Vec<ScoredCall>)>, BenchError> {
    let mut found = Vec::new();
    for (function, built_in) in TABLES {
        if !args.only.is_empty() && !args.only.iter().any(|only| only == function) {
            continue;
        }
        let (name, text) = match &args.tables {
            None => (format!("the table of {function}"), built_in.to_owned()),
            Some(folder) => {
                let file = folder.join(format!("{function}.jsonl"));
                if !file.exists() {
                    continue;
                }
                let text = std::fs::read_to_string(&file).map_err(BenchError::file(&file))?;
                (file.display().to_string(), text)
            }
        };
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        let read = |(number, line): (usize, &str)| {
            let bad = |error| BenchError::Case(format!("line {number} of {name}: {error}"));
            serde_json::from_str(line).map_err(bad)
        };
        let items = lines.map(read).collect::<Result<Vec<ScoredCall>, BenchError>>()?;
        if !items.is_empty() {
            found.push((function.to_owned(), items));
        }
    }
    if let Some(unknown) = args.only.iter().find(|only| !TABLES.iter().any(|(name, _)| name == only)) {
        let known: Vec<&str> = TABLES.iter().map(|(name, _)| *name).collect();
        return Err(BenchError::Case(format!(
            "--only: there is no function `{unknown}`, but {}",
            known.join(", ")
        )));
    }
    if found.is_empty() {
        return Err(BenchError::Case("there is no table".into()));
    }
    Ok(found)
}

/// The questions that this program was built with.
fn questions() -> Result<Vec<SheetQuestion>, BenchError> {
    let lines = include_str!("questions.jsonl").lines();
    let read = |line: &str| {
        serde_json::from_str(line).map_err(|error| BenchError::Case(format!("a question: {error}")))
    };
    lines.map(read).collect()
}

/// How good an answer is, 0 to 1: an answer that failed is 0.
fn score(function: &str, ScoredCall { args, expect }: &ScoredCall, value: &Value) -> f64 {
    let answered = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Null => return 0.0,
        value => value.to_string(),
    };
    let expected = expect.as_str().unwrap_or_default();
    match function {
        "rate" => match (number(&answered), expect.as_f64()) {
            // One off is as near as two people would be.
            (Some(answered), Some(expected)) => f64::from((answered - expected).abs() <= 1.0),
            _ => 0.0,
        },
        "tag" => f1(&split(expected), &split(&answered)),
        "summarize" | "translate" => f1(&words(expected), &words(&answered)),
        "ask" => {
            let answered = format!(" {} ", words(&answered).join(" "));
            let has = |accepted: &str| answered.contains(&format!(" {} ", words(accepted).join(" ")));
            f64::from(texts(expect).into_iter().any(has))
        }
        "list" => {
            let count = args.get(1).and_then(Value::as_u64).unwrap_or(5).max(1) as usize;
            let accepted: BTreeSet<String> = texts(expect).into_iter().map(str::to_lowercase).collect();
            let plain = |text: &str| text.trim().trim_end_matches(['.', ',']).to_lowercase();
            let items: BTreeSet<String> = texts(value).into_iter().take(count).map(plain).collect();
            items.intersection(&accepted).count() as f64 / count as f64
        }
        // Letter case is the answer itself, where it is asked for.
        "format" | "edit" => f64::from(answered == expected),
        _ => f64::from(answered.to_lowercase() == expected.to_lowercase()),
    }
}

/// The first whole number of a text.
fn number(text: &str) -> Option<f64> {
    let start = text.find(|character: char| character.is_ascii_digit())?;
    let digits: String = text[start..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().map(|all| all.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

fn split(text: &str) -> Vec<String> {
    text.split(',').map(|part| part.trim().to_lowercase()).filter(|part| !part.is_empty()).collect()
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|character: char| !character.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// The harmonic mean of precision and recall of words or tags, as often as each stands there.
fn f1(expected: &[String], answered: &[String]) -> f64 {
    let mut left = expected.to_vec();
    let mut common = 0;
    for word in answered {
        if let Some(at) = left.iter().position(|other| other == word) {
            left.swap_remove(at);
            common += 1;
        }
    }
    2.0 * f64::from(common) / (expected.len() + answered.len()).max(1) as f64
}

/// The mean, and half the width of its 95 % interval (normal approximation).
fn interval(scores: &[f64]) -> (f64, f64) {
    let count = scores.len().max(1) as f64;
    let mean = scores.iter().sum::<f64>() / count;
    let variance = scores.iter().map(|score| (score - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (mean, QUANTILE * (variance / count).sqrt())
}

/// What of an answer counts.
fn measured(function: &str) -> &'static str {
    match function {
        "rate" => "within one",
        "tag" => "F1 of tags",
        "summarize" | "translate" => "F1 of words",
        "ask" => "has the answer",
        "list" => "right items",
        _ => "equal",
    }
}

/// The table, for people.
fn text(scores: &[FunctionScores]) -> String {
    let mut text = format!("{:<11}{:>5}  {:<15}", "function", "rows", "measure");
    for (name, _) in WAYS {
        write!(text, "{name:>15}").expect("a string takes all that is written");
    }
    let mut line = |name: &str, rows: usize, measure: &str, ways: &[(f64, f64)]| {
        write!(text, "\n{name:<11}{rows:>5}  {measure:<15}").expect("a string takes all that is written");
        for (mean, half) in ways {
            let found = format!("{:.0} ± {:.0} %", 100.0 * mean, 100.0 * half);
            write!(text, "{found:>15}").expect("a string takes all that is written");
        }
    };
    for FunctionScores { function, rows, ways } in scores {
        line(function, *rows, measured(function), ways);
    }
    let count = scores.len().max(1) as f64;
    let over_all = std::array::from_fn::<_, { WAYS.len() }, _>(|way| {
        let mean = scores.iter().map(|one| one.ways[way].0).sum::<f64>() / count;
        (mean, scores.iter().map(|one| one.ways[way].1.powi(2)).sum::<f64>().sqrt() / count)
    });
    line("mean", scores.iter().map(|one| one.rows).sum(), "of functions", &over_all);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scored(function: &str, args: Value, expect: Value, value: Value) -> f64 {
        let args = args.as_array().expect("arguments").clone();
        score(function, &ScoredCall { args, expect }, &value)
    }

    #[test]
    fn answers_are_scored_by_what_their_function_gives() {
        let close =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        close(scored("classify", json!(["a"]), json!("good"), json!("Good")), 1.0);
        close(scored("format", json!(["a", "b"]), json!("AB"), json!("ab")), 0.0);
        close(scored("rate", json!(["a"]), json!(4), json!(5)), 1.0);
        close(scored("rate", json!(["a"]), json!(4), json!("I say 2 of 5")), 0.0);
        close(scored("tag", json!(["a"]), json!("x, y"), json!("y, z")), 0.5);
        close(scored("ask", json!(["a"]), json!(["12", "twelve"]), json!("It is twelve.")), 1.0);
        close(scored("ask", json!(["a"]), json!(["12"]), json!("120")), 0.0);
        close(
            scored("list", json!(["a", 4]), json!(["red", "blue"]), json!(["Red", "blue.", "red", "x"])),
            0.5,
        );
        close(scored("extract", json!(["a"]), json!("x"), Value::Null), 0.0);
        close(scored("translate", json!(["a"]), json!("le chat noir"), json!("Le chat.")), 0.8);
    }

    #[test]
    fn the_tables_have_20_to_40_calls_that_bind_and_share_no_text_with_the_examples() {
        let examples = include_str!("../../../ir/catalogue.toml");
        for (function, items) in tables(&FunctionsArgs::default()).expect("they are shipped") {
            assert!((20..=40).contains(&items.len()), "{function}: {}", items.len());
            for ScoredCall { args, .. } in items {
                let arguments: Vec<_> = args
                    .iter()
                    .map(|value| ir::catalogue::Argument::from_json(value).expect("an argument"))
                    .collect();
                ir::catalogue::Catalogue::built_in().bind(&function, &arguments).expect("it binds");
                let text = args[0].as_str().unwrap_or_default();
                let is_shown = examples.contains(&format!("[\"{text}\""));
                assert!(!is_shown || function == "list", "{function} shows {text}");
            }
        }
    }

    #[test]
    fn the_questions_are_35_of_every_function() {
        let questions = questions().expect("they are shipped");
        let functions: BTreeSet<&str> = questions.iter().map(|one| one.function.as_str()).collect();
        assert_eq!((questions.len(), functions.len()), (35, TABLES.len()));
    }

    #[test]
    fn the_table_has_a_line_per_function_and_their_mean() {
        let one = |function: &str, ways| FunctionScores { function: function.into(), rows: 24, ways };
        let scores = [
            one("classify", [(0.5, 0.2), (0.75, 0.1), (0.75, 0.1), (1.0, 0.0)]),
            one("tag", [(0.0, 0.0); 4]),
        ];
        insta::assert_snapshot!(text(&scores), @r"
        function    rows  measure                  plain           form       examples     calibrated
        classify      24  equal                50 ± 20 %      75 ± 10 %      75 ± 10 %      100 ± 0 %
        tag           24  F1 of tags             0 ± 0 %        0 ± 0 %        0 ± 0 %        0 ± 0 %
        mean          48  of functions         25 ± 10 %       38 ± 5 %       38 ± 5 %       50 ± 0 %
        ");
    }

    #[actix_web::test]
    async fn the_demo_model_is_measured_and_its_answers_are_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("answers.jsonl");
        let args = FunctionsArgs {
            only: vec!["classify".into(), "ask".into()],
            answers: Some(file.clone()),
            ..FunctionsArgs::default()
        };
        let mut lines = Vec::new();
        measure(&Config::default(), &args, &mut |line| lines.push(line.to_owned())).await.expect("it runs");
        let answers = std::fs::read_to_string(&file).expect("it is written");
        assert_eq!(answers.lines().count(), WAYS.len() * (30 + 22));
        assert!(answers.contains("beyond the built-in demo model"), "what it cannot do scores nothing");
        assert!(lines.last().is_some_and(|table| table.contains("classify") && table.contains("mean")));
        let unknown = FunctionsArgs { only: vec!["sum".into()], ..FunctionsArgs::default() };
        let error = measure(&Config::default(), &unknown, &mut |_| {}).await.expect_err("there is none");
        assert!(error.to_string().starts_with("--only: there is no function `sum`"), "{error}");
    }
}
