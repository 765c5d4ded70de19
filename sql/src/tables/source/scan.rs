//! A database's table in a plan: a statement of the database whose rows stream in.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, exec_datafusion_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures_util::future::BoxFuture;

use super::column::{BatchBuilder, SourceColumn, schema};
use super::filter::{Parameter, Writer};
use super::{Rows, Source, Table};

/// Batches that wait for whoever reads them; then the database waits.
const BATCHES_AHEAD: usize = 2;

/// A table of a source.
#[derive(Debug)]
pub(super) struct SourceTable {
    source: Arc<Source>,
    table: Arc<Table>,
    schema: SchemaRef,
}

impl SourceTable {
    pub(super) fn new(source: Arc<Source>, table: Arc<Table>) -> Self {
        let schema = schema(&table.columns);
        Self { source, table, schema }
    }

    /// The statement that reads these columns of the rows that pass the filters.
    fn statement(
        &self,
        columns: &[SourceColumn],
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Option<Statement> {
        let dialect = self.source.dialect();
        let mut writer = Writer::new(dialect, &self.table.columns);
        let predicates: Option<Vec<String>> = filters.iter().map(|filter| writer.predicate(filter)).collect();
        let predicates = predicates?;
        let selected: Vec<String> = columns.iter().map(|column| dialect.selected(column)).collect();
        // Only their number is asked for.
        let selected = if selected.is_empty() { "1".to_owned() } else { selected.join(", ") };
        let mut text = format!("SELECT {selected} FROM {}", self.table.quoted);
        if !predicates.is_empty() {
            text.push_str(" WHERE ");
            text.push_str(&predicates.join(" AND "));
        }
        if let Some(limit) = limit {
            text.push_str(&format!(" LIMIT {limit}"));
        }
        Some(Statement { text, parameters: writer.parameters })
    }

    fn read(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns: Arc<[SourceColumn]> = match projection {
            Some(places) => places.iter().map(|place| self.table.columns[*place].clone()).collect(),
            None => self.table.columns.as_slice().into(),
        };
        let Some(statement) = self.statement(&columns, filters, limit) else {
            return internal_err!("a predicate that the source was said to take is none");
        };
        Ok(Arc::new(SourceExec::new(Arc::clone(&self.source), columns, statement)))
    }
}

impl TableProvider for SourceTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let mut writer = Writer::new(self.source.dialect(), &self.table.columns);
        let can = |filter: &&Expr| match writer.predicate(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(can).collect())
    }

    /// The future has no expressions: see `planned` in `session.rs`.
    fn scan<'s, 'c, 'p, 'e, 'f>(
        &'s self,
        _: &'c dyn Session,
        projection: Option<&'p Vec<usize>>,
        filters: &'e [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>>
    where
        's: 'f,
        'c: 'f,
        'p: 'f,
        'e: 'f,
        Self: 'f,
    {
        Box::pin(ready(self.read(projection, filters, limit)))
    }
}

/// A statement for a database.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) parameters: Vec<Parameter>,
}

/// Runs it.
#[derive(Debug)]
struct SourceExec {
    source: Arc<Source>,
    columns: Arc<[SourceColumn]>,
    schema: SchemaRef,
    statement: Arc<Statement>,
    properties: Arc<PlanProperties>,
}

impl SourceExec {
    fn new(source: Arc<Source>, columns: Arc<[SourceColumn]>, statement: Statement) -> Self {
        let schema = schema(&columns);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { source, columns, schema, statement: Arc::new(statement), properties: Arc::new(properties) }
    }
}

impl DisplayAs for SourceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "SourceExec: source={}, sql={}", self.source.name(), self.statement.text)
    }
}

impl ExecutionPlan for SourceExec {
    fn name(&self) -> &str {
        "SourceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), BATCHES_AHEAD);
        let batches = stream.tx();
        let (source, statement) = (Arc::clone(&self.source), Arc::clone(&self.statement));
        let rows_max = context.session_config().batch_size();
        let batch = BatchBuilder::new(Arc::clone(&self.columns), Arc::clone(&self.schema), rows_max);
        // The task ends with the stream, and the database's statement with the task.
        stream.spawn(async move {
            let rows = Rows { columns: batch.columns(), batch, batches };
            let done = source.database.read(&statement, rows).await;
            done.map_err(|error| exec_datafusion_err!("source `{}`: {error}", source.name()))
        });
        Ok(stream.build())
    }
}
