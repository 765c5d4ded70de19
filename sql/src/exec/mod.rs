//! The physical AI operator: rows in, rows with answers (or those that stay) out, in the same order.

mod ask;
mod bind;
mod embed;
mod estimate;
mod flow;
mod order;
mod outer;
mod pending;
mod rank;
mod reduce;
mod rows;
mod tournament;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result, internal_err, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNode};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, EmissionType, ReplaceChildrenOptions, apply_expression_roots,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties as _,
    InputDistributionRequirements, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

pub use self::estimate::{estimates, has_calls, named_models};
use self::flow::RowFlow;
use self::outer::Unmatched;
use self::rows::Held;
use crate::node::{AiKind, AiNode, Ranking};
use crate::program::{AiCall, CallInput, Program};
use crate::query::Query;

/// A program with expressions that run.
#[derive(Debug)]
struct Compiled {
    program: Arc<Program>,
    schema: SchemaRef,
    calls: Vec<CompiledCall>,
    conjuncts: Vec<CompiledConjunct>,
}

#[derive(Debug)]
struct CompiledCall {
    /// The value, or the values of the prompt's places.
    input: Vec<Arc<dyn PhysicalExpr>>,
    prompt: Option<crate::prompt::PromptTemplate>,
    rest: Vec<Arc<dyn PhysicalExpr>>,
    /// Whether those are the same for all rows.
    has_constant_rest: bool,
    /// Whether other aggregates read the same texts: these then come first, where prompts share them.
    has_shared_texts: bool,
    guard: Option<Arc<dyn PhysicalExpr>>,
}

#[derive(Debug)]
struct CompiledConjunct {
    /// Calls by level.
    levels: Vec<Vec<usize>>,
    condition: Option<Arc<dyn PhysicalExpr>>,
}

/// What an operator does for each row.
#[derive(Clone, Debug)]
struct RowProgram {
    kind: AiKind,
    /// Over the input.
    slots: Vec<Arc<dyn PhysicalExpr>>,
    compiled: Arc<Compiled>,
}

impl RowProgram {
    /// A batch of the input with what the program reads of it.
    fn held(&self, batch: RecordBatch) -> Result<Held> {
        let rows = batch.num_rows();
        let slots =
            self.slots.iter().map(|slot| slot.evaluate(&batch)?.into_array(rows)).collect::<Result<_>>()?;
        Ok(Held::new(batch, slots, self.compiled.calls.len()))
    }

    /// A batch of the input as the program's expressions see it, before anything is answered.
    fn view(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let all: Vec<u32> = (0..batch.num_rows() as u32).collect();
        self.held(batch)?.view(&self.compiled, &all)
    }
}

/// The operator.
#[derive(Debug)]
pub struct AiExec {
    work: RowProgram,
    input: Arc<dyn ExecutionPlan>,
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl AiExec {
    fn new(work: RowProgram, input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Self {
        let answers = match work.kind {
            AiKind::Map | AiKind::Rank(_) => &work.compiled.schema.fields()[work.slots.len()..],
            AiKind::Filter | AiKind::Outer(_) => &[],
        };
        let fields: Vec<_> = input.schema().fields().iter().chain(answers).cloned().collect();
        let orders: Option<Vec<PhysicalSortExpr>> = match (&work.kind, fields.last()) {
            (AiKind::Map | AiKind::Filter, _) => {
                input.output_ordering().map(|order| order.iter().cloned().collect())
            }
            (AiKind::Rank(Ranking { nulls_first, .. }), Some(rank)) => {
                let rank = Column::new(rank.name(), fields.len() - 1);
                let options = SortOptions { descending: false, nulls_first: *nulls_first };
                Some(vec![PhysicalSortExpr::new(Arc::new(rank), options)])
            }
            // Rows without a partner come last.
            _ => None,
        };
        let schema = datafusion::arrow::datatypes::Schema::new_with_metadata(
            fields,
            input.schema().metadata().clone(),
        );
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::new(schema), orders),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            input.boundedness(),
        );
        Self { work, input, fetch, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() }
    }

    /// What it does for each row.
    pub fn program(&self) -> &Program {
        &self.work.compiled.program
    }
}

impl DisplayAs for AiExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let name = match &self.work.kind {
            AiKind::Map => "AiMapExec",
            AiKind::Filter => "AiFilterExec",
            AiKind::Outer(_) => "AiOuterJoinExec",
            AiKind::Rank(_) => "AiRankExec",
        };
        let calls: Vec<&str> = self.program().calls.iter().map(|call| call.written.as_str()).collect();
        write!(f, "{name}: {}", calls.join(", "))?;
        let ranked = match &self.work.kind {
            AiKind::Rank(Ranking { fetch, .. }) => *fetch,
            _ => None,
        };
        match self.fetch.into_iter().chain(ranked).min() {
            Some(fetch) => write!(f, ", fetch={fetch}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for AiExec {
    fn name(&self) -> &str {
        "AiExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![matches!(self.work.kind, AiKind::Map | AiKind::Filter)]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(&self.work.slots, f)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop() else { return internal_err!("an AI operator has one input") };
        Ok(Arc::new(Self::new(self.work.clone(), input, self.fetch)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(
            datafusion::physical_plan::execution_plan::ChildrenPropertiesMode::Recompute,
        );
        self.replace_children(children, options)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(query) = context.session_config().get_extension::<Query>() else {
            return plan_err!("AI functions need a query of a RelServe session");
        };
        let unmatched = match &self.work.kind {
            AiKind::Rank(ranking) => return rank::stream(self, *ranking, query, partition, context),
            AiKind::Outer(outer) => Some(Unmatched::new(outer, self.schema(), context.memory_pool())?),
            AiKind::Map | AiKind::Filter => None,
        };
        let input = self.input.execute(partition, context)?;
        Ok(RowFlow::stream(self, query, input, unmatched, partition))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.work.kind == AiKind::Map
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(Self::new(self.work.clone(), Arc::clone(&self.input), fetch)))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        match self.work.kind {
            AiKind::Map => CardinalityEffect::Equal,
            _ => CardinalityEffect::LowerEqual,
        }
    }
}

/// Makes operators of the logical ones.
#[derive(Debug)]
pub struct Planner;

#[async_trait]
impl ExtensionPlanner for Planner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        planning: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let node: &dyn Any = node.as_any();
        let Some(node) = node.downcast_ref::<AiNode>() else { return Ok(None) };
        let [input] = inputs else { return internal_err!("an AI operator has one input") };
        if let AiKind::Rank(ranking) = node.kind {
            rank::check(ranking)?;
        }
        let slots = node
            .slots
            .iter()
            .map(|slot| planner.create_physical_expr(slot, node.input.schema(), session, planning))
            .collect::<Result<_>>()?;
        // The optimizer does not see the program's expressions, and some functions (`coalesce`) run only as what
        // it makes of them.
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(node.program.df_schema()?))
            .with_config_options(Arc::new(session.config_options().clone()))
            .with_current_time()
            .build();
        let simplifier = ExprSimplifier::new(context);
        let one = |expr: &Expr, schema: &DFSchema| {
            planner.create_physical_expr(&simplifier.simplify(expr.clone())?, schema, session, planning)
        };
        let compiled = compile(&node.program, &one)?;
        let work = RowProgram { kind: node.kind.clone(), slots, compiled: Arc::new(compiled) };
        Ok(Some(Arc::new(AiExec::new(work, Arc::clone(input), None))))
    }
}

/// Makes an expression over a schema run.
type Physical<'a> = &'a dyn Fn(&Expr, &DFSchema) -> Result<Arc<dyn PhysicalExpr>>;

fn compile(program: &Arc<Program>, physical: Physical<'_>) -> Result<Compiled> {
    let schema = program.df_schema()?;
    let one = |expr: &Expr| physical(expr, &schema);
    let call = |call: &AiCall| {
        let (prompt, input) = match &call.input {
            CallInput::Value(value) => (None, vec![one(value)?]),
            CallInput::Prompt(text, values) => {
                (Some(text.template(values.len())?), values.iter().map(one).collect::<Result<_>>()?)
            }
        };
        let rest: Vec<_> = call.rest.iter().map(one).collect::<Result<_>>()?;
        let guard = call.guard.as_ref().map(one).transpose()?;
        let has_constant_rest = call.rest.iter().all(|value| value.column_refs().is_empty());
        let is_like = |other: &&AiCall| other.function.is_aggregate() && other.input == call.input;
        let has_shared_texts =
            call.function.is_aggregate() && program.calls.iter().filter(is_like).count() > 1;
        Ok(CompiledCall { input, prompt, rest, has_constant_rest, has_shared_texts, guard })
    };
    let conjuncts = program.conjuncts.iter().map(|conjunct| {
        let mut levels: Vec<Vec<usize>> = Vec::new();
        for place in &conjunct.calls {
            let level = program.calls[*place].level;
            levels.resize_with(levels.len().max(level + 1), Vec::new);
            levels[level].push(*place);
        }
        let condition = conjunct.condition.as_ref().map(one).transpose()?;
        Ok(CompiledConjunct { levels, condition })
    });
    Ok(Compiled {
        program: Arc::clone(program),
        schema: program.schema(),
        calls: program.calls.iter().map(call).collect::<Result<_>>()?,
        conjuncts: conjuncts.collect::<Result<_>>()?,
    })
}
