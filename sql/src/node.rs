//! The logical operators: [`AiMap`] adds the answers of calls as columns, [`AiFilter`] keeps the rows for
//! which conditions on answers hold.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use datafusion::common::{DFSchema, DFSchemaRef, Result, plan_err};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::program::Program;

/// What both operators have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AiNode {
    pub input: Arc<LogicalPlan>,
    /// Expressions over the input, one for each slot of the program.
    pub slots: Vec<Expr>,
    pub program: Arc<Program>,
    schema: DFSchemaRef,
}

/// Adds the answers of calls to its input's columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AiMap(pub AiNode);

/// Keeps the rows for which conditions on answers hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AiFilter(pub AiNode);

impl AiMap {
    /// Calls over an input.
    pub fn new(input: Arc<LogicalPlan>, slots: Vec<Expr>, program: Arc<Program>) -> Result<Self> {
        let answers = program
            .calls
            .iter()
            .map(|call| (None, Arc::new(Field::new(&call.name, call.function.output().data_type(), true))));
        let fields = input.schema().iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)));
        let schema =
            DFSchema::new_with_metadata(fields.chain(answers).collect(), input.schema().metadata().clone())?;
        Ok(Self(AiNode { input, slots, program, schema: Arc::new(schema) }))
    }
}

impl AiFilter {
    /// Conditions over an input.
    pub fn new(input: Arc<LogicalPlan>, slots: Vec<Expr>, program: Arc<Program>) -> Self {
        let schema = Arc::clone(input.schema());
        Self(AiNode { input, slots, program, schema })
    }
}

impl AiNode {
    fn take(&self, exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<(Arc<LogicalPlan>, Vec<Expr>)> {
        match (inputs.pop(), exprs.len() == self.slots.len()) {
            (Some(input), true) if inputs.is_empty() => Ok((Arc::new(input), exprs)),
            _ => plan_err!("an AI operator has one input and {} expressions", self.slots.len()),
        }
    }

    /// The positions of the input that the slots read, and those of `outputs` that come from the input.
    fn needed(&self, outputs: &[usize]) -> Option<Vec<Vec<usize>>> {
        let schema = self.input.schema();
        let mut needed: Vec<usize> =
            outputs.iter().copied().filter(|column| *column < schema.fields().len()).collect();
        for slot in &self.slots {
            for column in slot.column_refs() {
                needed.push(schema.maybe_index_of_column(column)?);
            }
        }
        needed.sort_unstable();
        needed.dedup();
        Some(vec![needed])
    }
}

impl PartialOrd for AiMap {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl PartialOrd for AiFilter {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl Hash for AiMap {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Hash for AiFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for AiMap {
    fn name(&self) -> &str {
        "AiMap"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.0.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.0.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.0.slots.clone()
    }

    /// A filter on the input's columns is cheaper below.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.0.program.calls.iter().map(|call| call.name.clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "AiMap: ")?;
        write_calls(f, &self.0.program)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (input, slots) = self.0.take(exprs, inputs)?;
        Self::new(input, slots, Arc::clone(&self.0.program))
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        self.0.needed(output_columns)
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}

impl UserDefinedLogicalNodeCore for AiFilter {
    fn name(&self) -> &str {
        "AiFilter"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.0.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.0.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.0.slots.clone()
    }

    /// Whatever can be decided without a model is decided first.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "AiFilter: ")?;
        write_calls(f, &self.0.program)?;
        for conjunct in &self.0.program.conjuncts {
            if let Some(condition) = &conjunct.condition {
                write!(f, ", keep {condition}")?;
            }
        }
        Ok(())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (input, slots) = self.0.take(exprs, inputs)?;
        Ok(Self::new(input, slots, Arc::clone(&self.0.program)))
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        self.0.needed(output_columns)
    }
}

fn write_calls(f: &mut fmt::Formatter, program: &Program) -> fmt::Result {
    for (i, call) in program.calls.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        write!(f, "{comma}{} := {}", call.name, call.written)?;
        if let Some(guard) = &call.guard {
            write!(f, " where {guard}")?;
        }
    }
    Ok(())
}
