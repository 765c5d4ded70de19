//! A column as SQL and the same rows as a relQuery over HTTP, in turns: what SQL adds to the time.

use std::cell::Cell;
use std::path::Path;

use gateway::config::Config;
use serde_json::{Value, json};

use super::super::BenchError;
use super::super::server::{BenchServer, TimedReply};
use super::{SqlSizes, median, text};

pub(super) async fn measure(
    config: &Config,
    sizes: &SqlSizes,
    folder: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let server = BenchServer::start(config.clone(), folder, None).await?;
    say(&server.model());
    let (mut sql, mut http, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up: a statement's first use of anything is slower, whatever the way.
    for round in 0..=sizes.rounds {
        let ways = if round % 2 == 0 { [true, false] } else { [false, true] };
        let mut took = [0.0; 2];
        for is_sql in ways {
            let answered = if is_sql {
                by_sql(&server, sizes, round).await?
            } else {
                by_http(&server, sizes, round).await?
            };
            took[usize::from(is_sql)] = answered.seconds;
        }
        if round > 0 {
            let [direct, statement] = took;
            http.push(direct);
            sql.push(statement);
            ratios.push(statement / direct);
        }
    }
    say(&format!(
        "a column of {} rows, {} output tokens each, {} rounds: SQL {:.3} s, HTTP {:.3} s (medians); SQL / HTTP \
         {:.3} (median of the rounds' ratios)",
        sizes.rows,
        sizes.output,
        sizes.rounds,
        median(sql),
        median(http),
        median(ratios)
    ));
    first_row(&server, sizes, say).await?;
    server.end().await;
    Ok(())
}

/// Prompts of a round begin with its number and way: none finds what another left in the cache. Those of either
/// way have as many tokens.
async fn by_sql(server: &BenchServer, sizes: &SqlSizes, round: u32) -> Result<TimedReply, BenchError> {
    let query = format!(
        "SELECT id, ai_complete(prompt('{round}a way. What is wrong? {{0}}', text), max_tokens => {}) AS answer \
         FROM texts WHERE id <= {}",
        sizes.output, sizes.rows
    );
    let answered = server.sql(&query, &json!({})).await?;
    all(answered, sizes.rows as usize)
}

async fn by_http(server: &BenchServer, sizes: &SqlSizes, round: u32) -> Result<TimedReply, BenchError> {
    let rows: Vec<Value> = (1..=sizes.rows).map(|id| json!([text(id)])).collect();
    let body = json!({
        "template": format!("{round}b way. What is wrong? {{text}}"), "columns": ["text"], "rows": rows,
        "max_tokens": sizes.output, "temperature": 0, "class": "dashboard", "stream": true,
    });
    let mut answered = server.post("/v1/relqueries", &body).await?;
    answered.lines.retain(|line| line == "event: row");
    all(answered, sizes.rows as usize)
}

fn all(answered: TimedReply, rows: usize) -> Result<TimedReply, BenchError> {
    if answered.lines.len() != rows {
        return Err(BenchError::Case(format!("{} of {rows} rows came", answered.lines.len())));
    }
    Ok(answered)
}

/// When the first row of a statement over many windows is out.
async fn first_row(
    server: &BenchServer,
    sizes: &SqlSizes,
    say: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let query = format!(
        "SELECT value, ai_complete(prompt('first row. {{0}}', value), max_tokens => {}) AS answer \
         FROM generate_series(1, {})",
        sizes.output, sizes.scanned_rows
    );
    let scanned = Cell::new(0);
    let look = async || {
        // The statement that looks is in the list too, without an operator.
        let seen = "SELECT rows FROM relserve.queries ORDER BY query DESC LIMIT 1";
        let line = server.sql(seen, &json!({})).await?.lines;
        let line: Option<Value> = line.first().and_then(|line| serde_json::from_str(line).ok());
        scanned.set(line.and_then(|line| line["rows"].as_u64()).unwrap_or_default());
        Ok::<(), BenchError>(())
    };
    let answered = server.post_and("/v1/sql", &json!({ "query": query }), look).await?;
    say(&format!(
        "first row out after {:.3} s of {:.3} s; {} of {} rows were scanned then",
        answered.first,
        answered.seconds,
        scanned.get(),
        sizes.scanned_rows
    ));
    Ok(())
}
