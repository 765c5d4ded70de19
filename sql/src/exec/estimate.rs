//! Before the bill: what the calls of a plan would cost, from the rows that reach them. Nothing is computed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures_util::StreamExt as _;
use ir::Cell;

use super::AiExec;
use super::ask::Values;
use super::rows::Held;
use crate::query::Query;
use crate::runner::AiColumn;

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
    if calls_below(&exec.input) {
        for call in &exec.program().calls {
            lines.push(format!("{}: for rows that the calls before it leave", call.written));
        }
        return Ok(lines);
    }
    let mut stream = execute_stream(Arc::clone(&exec.input), Arc::clone(context))?;
    let mut seen = Seen { rows: 0, is_whole: false, calls: vec![HashMap::new(); exec.program().calls.len()] };
    while seen.rows < ROWS_MAX {
        match stream.next().await.transpose()? {
            Some(batch) => seen.look(exec, batch.slice(0, batch.num_rows().min(ROWS_MAX - seen.rows)))?,
            None => {
                seen.is_whole = true;
                break;
            }
        }
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
    calls: Vec<HashMap<AiColumn, HashSet<Vec<Cell>>>>,
}

impl Seen {
    fn look(&mut self, exec: &AiExec, batch: datafusion::arrow::array::RecordBatch) -> Result<()> {
        let rows = batch.num_rows();
        self.rows += rows;
        let slots =
            exec.slots.iter().map(|slot| slot.evaluate(&batch)?.into_array(rows)).collect::<Result<_>>()?;
        let held = Held::new(batch, slots, exec.compiled.calls.len());
        let all: Vec<u32> = (0..rows as u32).collect();
        let view = held.view(&exec.compiled, &all)?;
        for (place, call) in exec.program().calls.iter().enumerate() {
            if call.level > 0 {
                continue;
            }
            let own = &exec.compiled.calls[place];
            let values = Values::of(own, &view)?;
            for at in (0..rows).filter(|at| values.is_wanted(*at)) {
                let (input, rest) = values.at(own, at)?;
                if let Ok(Some(bound)) = call.function.bind(&input, &rest, &call.options) {
                    self.calls[place].entry(bound.column).or_default().insert(bound.cells);
                }
            }
        }
        Ok(())
    }
}

/// Rows, distinct prompts, tokens, the share that is cached, and seconds.
async fn cost(seen: &Seen, prompts: &HashMap<AiColumn, HashSet<Vec<Cell>>>, query: &Query) -> Result<String> {
    let distinct: usize = prompts.values().map(HashSet::len).sum();
    let (mut asked, mut tokens, mut known, mut seconds, mut price) = (0, 0, 0, None, None);
    for (column, rows) in prompts {
        let rows: Vec<Vec<Cell>> = rows.iter().take(PROMPTS_MAX.saturating_sub(asked)).cloned().collect();
        asked += rows.len();
        let estimate = query.runner.estimate(column, rows).await;
        let estimate = estimate.map_err(|error| datafusion::common::exec_datafusion_err!("{error}"))?;
        tokens += estimate.prompt.0;
        known += estimate.known;
        seconds = estimate.seconds.map(|more| seconds.unwrap_or(0.0) + more).or(seconds);
        price = estimate.price.map(|more| price.unwrap_or(0.0) + more).or(price);
    }
    let scale = distinct as f64 / asked.max(1) as f64;
    let least = if seen.is_whole { "" } else { "more than " };
    let mut line = format!(
        "{least}{} rows, {distinct} distinct prompts, {:.0} prompt tokens, {:.0} % of the answers known",
        seen.rows,
        tokens as f64 * scale,
        known as f64 * 100.0 / asked.max(1) as f64,
    );
    if let Some(seconds) = seconds {
        line.push_str(&format!(", at most {:.1} s by the cost model", seconds * scale));
    }
    if let Some(price) = price {
        line.push_str(&format!(", {:.4} in money", price * scale));
    }
    Ok(line)
}

fn calls_below(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<AiExec>().is_some() || plan.children().into_iter().any(calls_below)
}

fn reads_answers(exec: &AiExec, expr: &datafusion::logical_expr::Expr) -> bool {
    let calls = &exec.program().calls;
    expr.column_refs().iter().any(|column| calls.iter().any(|call| call.name == column.name))
}
