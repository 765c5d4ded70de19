//! Before the bill: what the calls of a plan would cost, from the rows that reach them. Nothing is computed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures_util::StreamExt as _;
use ir::Cell;

use super::AiExec;
use super::bind::{Binder, BoundRow, CallArguments};
use super::rank::{GROUP_TEXTS, Texts};
use crate::node::{AiKind, Ranking};
use crate::query::{AnsweredBy, ColumnId, Query, QueryColumn};
use crate::runner::{Estimate, RunError};

/// Rows of an operator's input that are looked at; more are counted up from these.
const ROWS_MAX: usize = 10_000;
/// Distinct prompts that are tokenized; more are counted up from these.
const PROMPTS_MAX: usize = 1_000;

/// A line for each AI call of a plan, the first to run first.
pub async fn estimates(
    plan: &Arc<dyn ExecutionPlan>,
    query: &Query,
    context: &Arc<TaskContext>,
) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for child in plan.children() {
        lines.extend(Box::pin(estimates(child, query, context)).await?);
    }
    let Some(exec) = plan.downcast_ref::<AiExec>() else { return Ok(lines) };
    if has_calls(&exec.input) {
        for call in &exec.program().calls {
            lines.push(format!("{}: for rows that the calls before it leave", call.written));
        }
        return Ok(lines);
    }
    let mut stream = execute_stream(Arc::clone(&exec.input), Arc::clone(context))?;
    let mut seen = Seen::of(exec);
    while seen.rows < ROWS_MAX {
        match stream.next().await.transpose()? {
            Some(batch) => {
                seen.look(exec, query, batch.slice(0, batch.num_rows().min(ROWS_MAX - seen.rows)))?;
            }
            None => {
                seen.is_whole = true;
                break;
            }
        }
    }
    if let AiKind::Rank(ranking) = exec.work.kind {
        lines.push(format!(
            "{}: {}",
            exec.program().calls[0].written,
            comparisons(&mut seen, ranking, (query, exec.program().calls[0].options.model.as_deref()))
                .await?
        ));
        return Ok(lines);
    }
    for (call, prompts) in exec.program().calls.iter().zip(&seen.calls) {
        if call.level > 0 || call.guard.as_ref().is_some_and(|guard| reads_answers(exec, guard)) {
            lines.push(format!("{}: for rows that the calls before it leave", call.written));
            continue;
        }
        lines.push(format!("{}: {}", call.written, cost(&seen, prompts, query).await?));
    }
    Ok(lines)
}

/// What was seen of an operator's input.
struct Seen {
    rows: usize,
    /// Whether there are no more.
    is_whole: bool,
    /// Distinct prompts by call and column.
    calls: Vec<DistinctPrompts>,
    binders: Vec<Binder>,
    /// Those of a ranking.
    texts: Texts,
}

/// Distinct prompts by column.
type DistinctPrompts = HashMap<ColumnId, (QueryColumn, HashSet<Vec<Cell>>)>;

impl Seen {
    fn of(exec: &AiExec) -> Self {
        let calls = exec.program().calls.len();
        let binders = std::iter::repeat_with(Binder::default).take(calls).collect();
        Self {
            rows: 0,
            is_whole: false,
            calls: vec![HashMap::new(); calls],
            binders,
            texts: Texts::default(),
        }
    }

    fn look(&mut self, exec: &AiExec, query: &Query, batch: RecordBatch) -> Result<()> {
        let rows = batch.num_rows();
        self.rows += rows;
        if matches!(exec.work.kind, AiKind::Rank(_)) {
            return self.texts.look(&exec.work, 0, &batch);
        }
        let view = exec.work.view(batch)?;
        for (place, call) in exec.program().calls.iter().enumerate() {
            // What a group's texts become is known when they are read.
            if call.level > 0 || call.function.is_aggregate() {
                continue;
            }
            let own = &exec.work.compiled.calls[place];
            let values = CallArguments::of(own, &view)?;
            for at in (0..rows).filter(|at| values.is_wanted(*at)) {
                if let BoundRow::Row(column, cells) =
                    self.binders[place].bind(query, (call, own), &values, at)?
                {
                    let prompts = self.calls[place].entry(column.id);
                    prompts.or_insert_with(|| (column, HashSet::new())).1.insert(cells);
                }
            }
        }
        Ok(())
    }
}

/// Comparisons of a ranking, at most, with their tokens and what they take.
async fn comparisons(
    seen: &mut Seen,
    ranking: Ranking,
    (query, model): (&Query, Option<&str>),
) -> Result<String> {
    let texts = &mut seen.texts;
    texts.sort();
    let calls = texts.calls_max(ranking.fetch.unwrap_or(usize::MAX));
    let least = if seen.is_whole { "" } else { "more than " };
    let mut line = format!(
        "{least}{} rows, {} distinct texts, at most {calls} comparisons of {GROUP_TEXTS} texts",
        seen.rows,
        texts.distinct(),
    );
    let mut first: HashMap<_, Vec<Vec<Cell>>> = HashMap::new();
    for (column, cells) in texts.first(query, model).into_iter().take(PROMPTS_MAX) {
        first.entry(column).or_default().push(cells);
    }
    let mut cost = Cost::default();
    for (column, rows) in first {
        cost.add(query.runner.estimate(&column, rows.clone()).await, rows.len())?;
    }
    cost.write(calls, &mut line);
    Ok(line)
}

/// Rows, distinct prompts, tokens, the share that is cached, and seconds.
async fn cost(seen: &Seen, prompts: &DistinctPrompts, query: &Query) -> Result<String> {
    let distinct: usize = prompts.values().map(|(_, rows)| rows.len()).sum();
    let least = if seen.is_whole { "" } else { "more than " };
    let mut line = format!("{least}{} rows, {distinct} distinct ", seen.rows);
    if prompts.values().any(|(column, _)| column.answered_by == AnsweredBy::Embedder) {
        line.push_str("texts for the embedding model");
        return Ok(line);
    }
    line.push_str("prompts");
    let mut cost = Cost::default();
    for (column, rows) in prompts.values() {
        let rows: Vec<Vec<Cell>> =
            rows.iter().take(PROMPTS_MAX.saturating_sub(cost.asked)).cloned().collect();
        let asked = rows.len();
        cost.add(query.runner.estimate(&column.column, rows).await, asked)?;
    }
    cost.write(distinct, &mut line);
    Ok(line)
}

/// What the prompts that were looked at cost.
#[derive(Debug, Default)]
struct Cost {
    asked: usize,
    tokens: u64,
    known: usize,
    seconds: Option<f64>,
    price: Option<f64>,
}

impl Cost {
    fn add(&mut self, estimate: Result<Estimate, RunError>, asked: usize) -> Result<()> {
        let estimate = estimate.map_err(|error| exec_datafusion_err!("{error}"))?;
        self.asked += asked;
        self.tokens += estimate.prompt.0;
        self.known += estimate.known;
        let sum = |sum: Option<f64>, more: Option<f64>| more.map(|more| sum.unwrap_or(0.0) + more).or(sum);
        self.seconds = sum(self.seconds, estimate.seconds);
        self.price = sum(self.price, estimate.price);
        Ok(())
    }

    /// Counted up to so many prompts.
    fn write(&self, prompts: usize, line: &mut String) {
        let asked = self.asked.max(1) as f64;
        let scale = prompts as f64 / asked;
        let known = self.known as f64 * 100.0 / asked;
        line.push_str(&format!(
            ", {:.0} prompt tokens, {known:.0} % of the answers known",
            self.tokens as f64 * scale
        ));
        if let Some(seconds) = self.seconds {
            line.push_str(&format!(", at most {:.1} s by the cost model", seconds * scale));
        }
        if let Some(price) = self.price {
            line.push_str(&format!(", at most {:.4} by the replicas' prices", price * scale));
        }
    }
}

/// The models that calls of a plan name.
pub fn named_models(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let calls = plan.downcast_ref::<AiExec>().map_or(&[][..], |exec| &exec.program().calls);
    let own = calls.iter().filter_map(|call| call.options.model.clone());
    own.chain(plan.children().into_iter().flat_map(named_models)).collect()
}

/// Whether a plan asks a model.
pub fn has_calls(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<AiExec>().is_some() || plan.children().into_iter().any(has_calls)
}

fn reads_answers(exec: &AiExec, expr: &datafusion::logical_expr::Expr) -> bool {
    let calls = &exec.program().calls;
    expr.column_refs().iter().any(|column| calls.iter().any(|call| call.name == column.name))
}
