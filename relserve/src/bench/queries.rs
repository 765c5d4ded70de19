//! `relserve bench queries`: the 16 queries of the GGR paper as SQL, end to end. A server in this process gets
//! each statement over HTTP.
//!
//! Three ways, as in the paper's figures 3 and 4: no prefix cache; the cache, rows and fields as they lie; the
//! cache, and the order that is found (`relserve.order = 'fields'`). Each way has a server of its own that
//! serves first come, first served, with nothing remembered of the ways before. Counts are those of
//! `relserve.queries`; time runs from the statement to the last byte of its result.

mod data;
mod suite;

use std::path::{Path, PathBuf};

use gateway::config::Config;
use retrieval::synthetic::Synthetic;
use scheduler::Policy;
use serde_json::{Value, json};
use suite::{SUITE, SuiteQuery};

use super::BenchError;
use super::server::{BenchServer, saying_anything};

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Tables {
    /// A folder of CSV files: movies.csv, products.csv, bird.csv, pdmx.csv, beer.csv, squad.csv [default:
    /// made-up tables].
    #[arg(long)]
    data: Option<PathBuf>,
    /// Rows of each table.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rows: u32,
    /// Only queries whose name has this in it [default: all].
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// Tokens of the KV pool that are used [default: all of it]; rows that run have to fit too.
    #[arg(long)]
    cache_tokens: Option<u32>,
    /// What shuffled files are shuffled by, and tables are made up from.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// A folder with an embedding model for the RAG queries [default: a made-up one].
    #[arg(long)]
    embedding: Option<PathBuf>,
}

/// A way of running a table: its name, whether there is a cache, and `relserve.order`.
const WAYS: [(&str, bool, &str); 3] =
    [("no cache", false, "exact"), ("original", true, "exact"), ("ours", true, "fields")];

/// Tokens that the made-up embedding model reads of a text.
const EMBEDDED_TOKENS: usize = 512;
/// Documents that one request adds to a corpus.
const DOCUMENTS: usize = 500;

/// What the model did for the last statement; what looks up in a corpus is no call of a model.
const COUNTS: &str = "SELECT coalesce(sum(answered - from_cache), 0) AS calls, \
    coalesce(sum(prompt_tokens), 0) AS prompt, coalesce(sum(cached_tokens), 0) AS cached, \
    coalesce(sum(failed), 0) AS failed FROM relserve.queries \
    WHERE operator NOT LIKE 'ai_retrieve%' AND query = (SELECT max(query) FROM relserve.queries)";

/// What one way came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WayCounts {
    seconds: f64,
    calls: u64,
    failed: u64,
    prompt: u64,
    cached: u64,
}

/// Runs the suite on the configured model and says the table.
pub async fn measure(config: &Config, tables: &Tables, say: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let folder = tempfile::tempdir().map_err(BenchError::file(Path::new("a temporary folder")))?;
    let written = data::write(tables, &BenchServer::tables(folder.path())?)?;
    let is_chosen = |query: &&SuiteQuery| query.name.contains(&tables.only);
    let (known, unknown): (Vec<&SuiteQuery>, Vec<&SuiteQuery>) =
        SUITE.iter().filter(is_chosen).partition(|query| written.tables.contains(query.table));
    let mut took: Vec<[WayCounts; WAYS.len()]> = vec![Default::default(); known.len()];
    for (way, (name, has_cache, order)) in WAYS.into_iter().enumerate() {
        let mut config = saying_anything(config);
        config.scheduler.policy = Policy::Fcfs;
        config.scheduler.prefix_cache = has_cache;
        if known.iter().any(|query| query.kind() == "T5") {
            config.retrieval.model = Some(embedding(tables, &written, folder.path())?);
        }
        let server = BenchServer::start(config, folder.path(), tables.cache_tokens).await?;
        if way == 0 {
            say(&server.model());
        }
        for corpus in ["squad", "fever"] {
            if known.iter().any(|query| query.table == corpus) {
                add_documents(&server, corpus, &written.contexts).await?;
            }
        }
        for (query, took) in known.iter().zip(&mut took) {
            took[way] = run(&server, query, order).await?;
            tracing::info!(query = query.name, way = name, seconds = took[way].seconds, "ran");
        }
        server.end().await;
    }
    say(&format!(
        "{:<22}{:>5} {:<9}{:>8}{:>8}{:>14}{:>16}{:>8}{:>9}",
        "query", "type", "way", "calls", "failed", "prompt tokens", "computed tokens", "hit %", "s"
    ));
    for (query, took) in known.iter().zip(&took) {
        for ((way, ..), took) in WAYS.iter().zip(took) {
            say(&line(query, way, took));
        }
    }
    for query in unknown {
        say(&format!("{:<22}{:>5} left out: there is no {}.csv", query.name, query.kind(), query.table));
    }
    Ok(())
}

fn line(query: &SuiteQuery, way: &str, took: &WayCounts) -> String {
    let hit = 100.0 * took.cached as f64 / took.prompt.max(1) as f64;
    format!(
        "{:<22}{:>5} {way:<9}{:>8}{:>8}{:>14}{:>16}{hit:>8.1}{:>9.2}",
        query.name,
        &query.kind()[..2],
        took.calls,
        took.failed,
        took.prompt,
        took.prompt - took.cached,
        took.seconds
    )
}

/// A query in one way.
async fn run(server: &BenchServer, query: &SuiteQuery, order: &str) -> Result<WayCounts, BenchError> {
    let answered = server.sql(query.text, &json!({ "relserve.order": order })).await?;
    let counts = server.sql(COUNTS, &json!({})).await?;
    let counts: Value = counts
        .lines
        .first()
        .and_then(|line| serde_json::from_str(line).ok())
        .ok_or_else(|| BenchError::Case("relserve.queries has no row".to_owned()))?;
    let count = |name: &str| counts[name].as_u64().unwrap_or_default();
    Ok(WayCounts {
        seconds: answered.seconds,
        calls: count("calls"),
        failed: count("failed"),
        prompt: count("prompt"),
        cached: count("cached"),
    })
}

/// The folder of the embedding model: the one that was named, or a made-up one that knows the tables' words.
fn embedding(tables: &Tables, written: &data::TablesWritten, folder: &Path) -> Result<PathBuf, BenchError> {
    if let Some(named) = &tables.embedding {
        return Ok(named.clone());
    }
    let place = folder.join("embedding");
    std::fs::create_dir_all(&place).map_err(BenchError::file(&place))?;
    let words: Vec<&str> = written.words.iter().map(String::as_str).collect();
    let made = Synthetic { positions: EMBEDDED_TOKENS, ..Synthetic::tiny(&words, tables.seed) };
    made.write(&place).map_err(|error| BenchError::Case(error.to_string()))?;
    Ok(place)
}

async fn add_documents(server: &BenchServer, corpus: &str, texts: &[String]) -> Result<(), BenchError> {
    for (part, texts) in texts.chunks(DOCUMENTS).enumerate() {
        let document = |(place, text): (usize, &String)| json!({ "id": format!("{}", part * DOCUMENTS + place), "text": text });
        let documents: Vec<Value> = texts.iter().enumerate().map(document).collect();
        server.post("/v1/corpora", &json!({ "name": corpus, "documents": documents })).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(data: Option<PathBuf>, only: &str) -> Tables {
        Tables { data, rows: 32, only: only.into(), cache_tokens: None, seed: 1, embedding: None }
    }

    async fn lines(tables: &Tables) -> Vec<String> {
        let mut lines = Vec::new();
        let measured = measure(&Config::default(), tables, &mut |line| lines.push(line.to_owned())).await;
        measured.expect("the demo model runs");
        lines
    }

    /// Calls, failed ones, prompt tokens and computed tokens of a line.
    fn counts(line: &str) -> [u64; 4] {
        let numbers = line[36..].split_whitespace().take(4).filter_map(|word| word.parse().ok());
        numbers.collect::<Vec<u64>>().try_into().unwrap_or_else(|_| panic!("{line}"))
    }

    #[actix_web::test]
    async fn the_16_queries_run_as_sql_and_our_order_computes_less_for_the_same_answers() {
        let lines = lines(&tables(None, "")).await;
        assert_eq!(lines.len(), 2 + 3 * SUITE.len(), "{lines:#?}");
        let mut computed = [0; WAYS.len()];
        for (query, lines) in SUITE.iter().zip(lines[2..].chunks(3)) {
            let [none, original, ours] = [0, 1, 2].map(|way| counts(&lines[way]));
            assert!(lines.iter().all(|line| line.starts_with(query.name)), "{lines:#?}");
            assert_eq!(none[3], none[2], "nothing comes from a cache: {lines:#?}");
            assert!(original[3] < original[2] && none[1] == 0, "{lines:#?}");
            if query.kind() == "T3" {
                // One call for each row, and a second for those that pass.
                assert!((32..=64).contains(&none[0]), "{lines:#?}");
            } else {
                assert_eq!((none[0], ours[0]), (32, 32), "{lines:#?}");
                assert_eq!(original[..3], none[..3], "the same prompts: {lines:#?}");
            }
            for (sum, way) in computed.iter_mut().zip([none, original, ours]) {
                *sum += way[3];
            }
        }
        assert!(computed[2] < computed[1], "{computed:?}: {lines:#?}");
    }

    #[actix_web::test]
    async fn a_table_that_is_not_there_is_left_out_and_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let lines = lines(&tables(Some(folder.path().into()), "rag")).await;
        assert!(lines[2..].iter().all(|line| line.contains("left out")), "{lines:?}");
        assert_eq!(lines.len(), 4, "{lines:?}");
    }
}
