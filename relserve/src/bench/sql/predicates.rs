//! Three AI conditions of different selectivity: model calls in the order written, in ours, and in the order
//! that turns out best. The model is a function of the prompt, so that each selectivity is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::TokenCount;
use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use ir::Cell;
use sql::Session;
use sql::runner::{
    AiColumn, Estimate, Outcome, Row, RowAnswer, Run, RunError, RunOptions, Runner, Tokens, Unsent,
};
use tokio::sync::mpsc::UnboundedSender;

use super::super::BenchError;
use super::SqlSizes;

/// Conditions, as they are written, with the rows of a hundred for which they hold.
const CONDITIONS: [(&str, u64); 3] = [("wide", 95), ("half", 50), ("narrow", 10)];
/// All orders of the three.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

pub(super) async fn measure(sizes: &SqlSizes, say: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let names = CONDITIONS.map(|(name, percent)| format!("{name} ({percent} %)"));
    say(&format!("model calls of {} rows with three conditions: {}", sizes.condition_rows, names.join(", ")));
    let call = |condition: usize| format!("ai_if(prompt('{} {{0}}', value))", CONDITIONS[condition].0);
    let mut fixed = Vec::new();
    for [first, second, third] in ORDERS {
        // A branch that is not taken asks nothing: this is the order, whatever the planner thinks of it.
        let condition = format!(
            "CASE WHEN {} THEN CASE WHEN {} THEN {} ELSE false END ELSE false END",
            call(first),
            call(second),
            call(third)
        );
        fixed.push(calls(&condition, sizes).await?);
    }
    let ours = calls(&[0, 1, 2].map(call).join(" AND "), sizes).await?;
    let (rows, _) = ours;
    if fixed.iter().any(|(other, _)| *other != rows) {
        return Err(BenchError::Case("the order changes the result".to_owned()));
    }
    let written = fixed[0].1;
    let best = fixed.iter().map(|(_, calls)| *calls).min().unwrap_or(written);
    let times = |calls: usize| calls as f64 / best as f64;
    for (name, calls) in [("as written", written), ("ours", ours.1), ("best by hindsight", best)] {
        say(&format!("{name:<18} {calls:>8}  x {:.3}", times(calls)));
    }
    Ok(())
}

/// The rows for which a condition holds, and the calls it took.
async fn calls(condition: &str, sizes: &SqlSizes) -> Result<(i64, usize), BenchError> {
    let counter = Arc::new(AtomicUsize::new(0));
    let session = Session::new(Arc::new(KnownAnswers(Arc::clone(&counter))), Arc::default());
    let query = format!("SELECT value FROM generate_series(1, {}) WHERE {condition}", sizes.condition_rows);
    let failed = |error: sql::DataFusionError| BenchError::Case(error.to_string());
    let running = session.query(&query).await.map_err(failed)?;
    let batches: Vec<_> = running.stream.try_collect().await.map_err(failed)?;
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    Ok((rows as i64, counter.load(Ordering::Relaxed)))
}

/// A model whose answers follow from the row, and how often it was asked.
#[derive(Debug)]
struct KnownAnswers(Arc<AtomicUsize>);

/// A column of it.
struct KnownColumn {
    /// Rows of a hundred that it says yes to.
    percent: u64,
    place: u64,
    calls: Arc<AtomicUsize>,
    answers: UnboundedSender<RowAnswer>,
}

impl Runner for KnownAnswers {
    fn open(&self, column: &AiColumn, _: RunOptions, answers: UnboundedSender<RowAnswer>) -> Box<dyn Run> {
        let template = column.shared.template.to_string();
        let place = CONDITIONS.iter().position(|(name, _)| template.contains(name)).unwrap_or_default();
        let (calls, percent) = (Arc::clone(&self.0), CONDITIONS[place].1);
        Box::new(KnownColumn { percent, place: place as u64, calls, answers })
    }

    fn model(&self, name: &str) -> Result<String, RunError> {
        Err(RunError::new(format!("the model `{name}` does not exist")))
    }

    fn prompt_chars_max(&self, _: Option<&str>) -> usize {
        1_000
    }

    fn estimate<'a>(
        &'a self,
        _: &'a AiColumn,
        _: Vec<Vec<Cell>>,
    ) -> BoxFuture<'a, Result<Estimate, RunError>> {
        Box::pin(async { Ok(Estimate::default()) })
    }
}

impl Run for KnownColumn {
    fn send(&mut self, rows: Vec<Row>) -> BoxFuture<'_, Result<(), Unsent>> {
        self.calls.fetch_add(rows.len(), Ordering::Relaxed);
        for Row { id, cells } in rows {
            let number: u64 = cells.first().and_then(|cell| cell.text().parse().ok()).unwrap_or_default();
            // Conditions hold independently of one another, and spread over the rows.
            let draw = (number * 3 + self.place).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
            let outcome = Outcome::text(if draw % 100 < self.percent { "yes" } else { "no" });
            let tokens = Tokens { prompt: TokenCount(20), cached: TokenCount(0), output: TokenCount(1) };
            // Whoever asked may be gone.
            let _ = self.answers.send(RowAnswer { id, outcome, tokens, is_computed: true });
        }
        Box::pin(async { Ok(()) })
    }
}
