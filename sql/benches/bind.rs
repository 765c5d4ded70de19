//! What a row of an AI call costs beside the model: its arguments read and bound, and told apart from the rows
//! before it.
//!
//! `labels at each row` is what binding them at every row would add to it. The rows of the statement have 50
//! different texts and their answers come at once: what is left is the operator's own work.

use std::hint::black_box;
use std::sync::Arc;

use base::TokenCount;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use datafusion::common::ScalarValue;
use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use ir::Cell;
use sql::Session;
use sql::function::{BoundInput, Function};
use sql::options::CallOptions;
use sql::runner::{
    AiColumn, Estimate, Outcome, Row, RowAnswer, Run, RunError, RunOptions, Runner, Tokens, Unsent,
};
use tokio::sync::mpsc::UnboundedSender;

const ROWS: u64 = 10_000;
const LABELS: usize = 20;

/// Answers every row with the first label.
#[derive(Debug)]
struct AtOnce;

struct AnsweredColumn(UnboundedSender<RowAnswer>);

impl Runner for AtOnce {
    fn open(&self, _: &AiColumn, _: RunOptions, answers: UnboundedSender<RowAnswer>) -> Box<dyn Run> {
        Box::new(AnsweredColumn(answers))
    }

    fn model(&self, name: &str) -> Result<String, RunError> {
        Err(RunError::new(format!("the model `{name}` does not exist")))
    }

    fn prompt_chars_max(&self, _: Option<&str>) -> usize {
        8_000
    }

    fn estimate<'a>(
        &'a self,
        _: &'a AiColumn,
        _: Vec<Vec<Cell>>,
    ) -> BoxFuture<'a, Result<Estimate, RunError>> {
        Box::pin(async { Ok(Estimate::default()) })
    }
}

impl Run for AnsweredColumn {
    fn send(&mut self, rows: Vec<Row>) -> BoxFuture<'_, Result<(), Unsent>> {
        Box::pin(async move {
            for Row { id, .. } in rows {
                let outcome = Outcome::text("label 0");
                let tokens = Tokens { prompt: TokenCount(10), ..Tokens::default() };
                let _ = self.0.send(RowAnswer { id, outcome, tokens, is_computed: true });
            }
            Ok(())
        })
    }
}

fn labels() -> Vec<String> {
    (0..LABELS).map(|label| format!("label {label}")).collect()
}

/// One row's arguments.
fn arguments(row: u64) -> (BoundInput, Vec<ScalarValue>) {
    let labels: Vec<ScalarValue> = labels().into_iter().map(ScalarValue::from).collect();
    let labels = ScalarValue::new_list_nullable(&labels, &datafusion::arrow::datatypes::DataType::Utf8);
    (BoundInput::Value(ScalarValue::from(format!("text {}", row % 50))), vec![ScalarValue::List(labels)])
}

fn bind(criterion: &mut Criterion) {
    let function = Function::by_name("ai_classify").expect("a function of this name");
    let (options, rest) = (CallOptions::default(), arguments(0).1);
    let input = BoundInput::Value(ScalarValue::from("text 7"));
    let mut group = criterion.benchmark_group("bind");
    group.bench_function("labels at each row", |bench| {
        bench.iter(|| function.bind(black_box(&input), black_box(&rest), &options));
    });
    group.finish();
}

/// A statement over all rows, with everything that an operator does for them.
fn statement(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let labels = labels().iter().map(|label| format!("'{label}'")).collect::<Vec<_>>().join(", ");
    let text = format!(
        "SELECT count(ai_classify('text ' || (value % 50), [{labels}])) FROM generate_series(1, {ROWS})"
    );
    let mut group = criterion.benchmark_group("statement");
    group.throughput(Throughput::Elements(ROWS)).sample_size(10);
    group.bench_function("a row of ai_classify with 20 labels", |bench| {
        let session = || Session::new(Arc::new(AtOnce), Arc::default());
        let run = |session: Session| {
            runtime.block_on(async {
                let running = session.query(&text).await.expect("the statement is good");
                let batches: Vec<_> = running.stream.try_collect().await.expect("it runs");
                black_box(batches)
            })
        };
        bench.iter_batched(session, run, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, bind, statement);
criterion_main!(benches);
