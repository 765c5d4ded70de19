//! The queries of a tenant, as tables: `relserve.queries` (how far each is, by AI operator) and
//! `relserve.errors` (the calls that failed).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider, Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::query::{OperatorProgress, Query};

/// Queries that are shown, the running ones and the last that ended.
const SHOWN_MAX: usize = 100;

/// The queries of a tenant.
#[derive(Debug, Default)]
pub struct Registry {
    queries: Mutex<VecDeque<(u64, Arc<Query>)>>,
    next: AtomicU64,
}

impl Registry {
    fn queries(&self) -> MutexGuard<'_, VecDeque<(u64, Arc<Query>)>> {
        self.queries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A query begins.
    pub fn add(&self, query: &Arc<Query>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut queries = self.queries();
        queries.push_back((number, Arc::clone(query)));
        let excess = queries.len().saturating_sub(SHOWN_MAX);
        let ended = queries.iter().enumerate().filter(|(_, (_, query))| query.progress.is_over());
        let oldest: Vec<usize> = ended.map(|(place, _)| place).take(excess).collect();
        for place in oldest.into_iter().rev() {
            queries.remove(place);
        }
    }

    /// Its tables.
    pub fn schema(self: &Arc<Self>) -> Arc<dyn SchemaProvider> {
        let provider = MemorySchemaProvider::new();
        let tables: [(&str, Shown); 2] = [("queries", queries), ("errors", errors)];
        for (name, shown) in tables {
            let table = View { registry: Arc::clone(self), schema: shown(&[]).0, shown };
            // A new provider has no table of this name.
            let _ = provider.register_table(name.to_owned(), Arc::new(table));
        }
        Arc::new(provider)
    }
}

/// A table of queries.
type Shown = fn(&[(u64, Arc<Query>)]) -> (SchemaRef, Vec<ArrayRef>);

struct View {
    registry: Arc<Registry>,
    schema: SchemaRef,
    shown: Shown,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("View").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for View {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let queries: Vec<_> = self.registry.queries().iter().cloned().collect();
        let (schema, columns) = (self.shown)(&queries);
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
        Ok(MemorySourceConfig::try_new_exec(&[vec![batch]], schema, projection.cloned())?)
    }
}

fn table(columns: Vec<(&str, ArrayRef)>) -> (SchemaRef, Vec<ArrayRef>) {
    let fields = columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    (schema, columns.into_iter().map(|(_, column)| column).collect())
}

fn texts(values: impl Iterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(StringArray::from(values.collect::<Vec<_>>()))
}

fn counts(values: impl Iterator<Item = u64>) -> ArrayRef {
    let values = values.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
    Arc::new(Int64Array::from(values.collect::<Vec<_>>()))
}

fn queries(queries: &[(u64, Arc<Query>)]) -> (SchemaRef, Vec<ArrayRef>) {
    let rows: Vec<_> = queries
        .iter()
        .flat_map(|(number, query)| {
            query.progress.operators().into_iter().map(move |operator| (*number, query, operator))
        })
        .collect();
    let count = |of: fn(&OperatorProgress) -> usize| {
        counts(rows.iter().map(move |(_, _, operator)| of(operator) as u64))
    };
    table(vec![
        ("query", counts(rows.iter().map(|(number, ..)| *number))),
        ("state", texts(rows.iter().map(|(_, query, _)| Some(query.progress.state().to_owned())))),
        ("statement", texts(rows.iter().map(|(_, query, _)| Some(query.progress.text.clone())))),
        ("operator", texts(rows.iter().map(|(.., operator)| Some(operator.label.clone())))),
        ("rows", count(|operator| operator.rows.value())),
        ("decided", count(|operator| operator.decided.value())),
        ("prompts", count(|operator| operator.sent.value())),
        ("answered", count(|operator| operator.answered.value())),
        ("from_cache", count(|operator| operator.answered.value() - operator.computed.value())),
        ("failed", count(|operator| operator.failed.value())),
        ("prompt_tokens", count(|operator| operator.prompt_tokens.value())),
        ("cached_tokens", count(|operator| operator.cached_tokens.value())),
        ("answer_tokens", count(|operator| operator.output_tokens.value())),
        ("price", prices(&rows)),
    ])
}

/// What the computed tokens of operators cost; NULL where no replica has a price.
fn prices(rows: &[(u64, &Arc<Query>, Arc<OperatorProgress>)]) -> ArrayRef {
    let price = |(_, query, operator): &(u64, &Arc<Query>, Arc<OperatorProgress>)| {
        let (prompt, output) = (operator.prompt_tokens.value(), operator.output_tokens.value());
        let prices = operator.models.iter().filter_map(|model| query.runner.price(model.as_deref()));
        prices.map(|price| price.of(prompt as u64, output as u64)).max_by(f64::total_cmp)
    };
    Arc::new(Float64Array::from(rows.iter().map(price).collect::<Vec<_>>()))
}

fn errors(queries: &[(u64, Arc<Query>)]) -> (SchemaRef, Vec<ArrayRef>) {
    let rows: Vec<_> = queries
        .iter()
        .flat_map(|(number, query)| query.progress.errors().into_iter().map(move |error| (*number, error)))
        .collect();
    table(vec![
        ("query", counts(rows.iter().map(|(number, _)| *number))),
        ("call", texts(rows.iter().map(|(_, error)| Some(error.call.clone())))),
        ("reason", texts(rows.iter().map(|(_, error)| Some(error.reason.clone())))),
    ])
}
