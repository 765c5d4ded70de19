//! The logical operator of AI calls: as a map it adds the answers of calls as columns, as a filter it keeps the
//! rows for which conditions on answers hold, above an outer join it gives rows without a partner back, and as
//! a ranking it orders rows by comparing their texts.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, DFSchemaRef, JoinType, Result, plan_err};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::program::{Program, slot_name};

/// What an AI operator does with answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AiKind {
    /// Adds them to its input's columns.
    Map,
    /// Keeps the rows for which conditions on them hold.
    Filter,
    /// Keeps the pairs of an outer join for which conditions on them hold, and gives each row that is left
    /// without a partner back, with NULLs for the other side.
    Outer(OuterJoin),
    /// Orders rows by their texts, which are compared with one another, and adds each row's rank.
    Rank(Ranking),
}

/// The outer join whose pairs an operator decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OuterJoin {
    /// `Left`, `Right` or `Full`.
    pub join_type: JoinType,
    /// The last column of either side. Of a side whose rows are given back it numbers them; of the other it is
    /// NULL where there is no partner.
    pub markers: [String; 2],
}

/// How rows are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ranking {
    /// Rows that are wanted; `None` until the optimizer has met the `LIMIT`.
    pub fetch: Option<usize>,
    /// Whether rows without a text come first.
    pub nulls_first: bool,
}

/// An AI operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AiNode {
    pub kind: AiKind,
    pub input: Arc<LogicalPlan>,
    /// Expressions over the input, one for each slot of the program.
    pub slots: Vec<Expr>,
    pub program: Arc<Program>,
    schema: DFSchemaRef,
}

impl AiNode {
    /// Calls over an input.
    pub fn map(input: Arc<LogicalPlan>, slots: Vec<Expr>, program: Arc<Program>) -> Result<Self> {
        Self::new(AiKind::Map, input, slots, program)
    }

    /// Conditions over an input.
    pub fn filter(input: Arc<LogicalPlan>, slots: Vec<Expr>, program: Arc<Program>) -> Result<Self> {
        Self::new(AiKind::Filter, input, slots, program)
    }

    /// An operator of any kind.
    pub fn new(
        kind: AiKind,
        input: Arc<LogicalPlan>,
        slots: Vec<Expr>,
        program: Arc<Program>,
    ) -> Result<Self> {
        let schema = match kind {
            AiKind::Filter | AiKind::Outer(_) => Arc::clone(input.schema()),
            AiKind::Map | AiKind::Rank(_) => {
                let answers = program.calls.iter().map(|call| {
                    (None, Arc::new(Field::new(&call.name, call.function.output().data_type(), true)))
                });
                let own = input.schema();
                let fields = own.iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)));
                let fields = fields.chain(answers).collect();
                Arc::new(DFSchema::new_with_metadata(fields, own.metadata().clone())?)
            }
        };
        Ok(Self { kind, input, slots, program, schema })
    }

    fn take(&self, exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<(Arc<LogicalPlan>, Vec<Expr>)> {
        match (inputs.pop(), exprs.len() == self.slots.len()) {
            (Some(input), true) if inputs.is_empty() => Ok((Arc::new(input), exprs)),
            _ => plan_err!("an AI operator has one input and {} expressions", self.slots.len()),
        }
    }

    /// An expression of the program with what its slots stand for.
    fn readable(&self, expr: &Expr) -> Expr {
        let stands_for = |expr: Expr| {
            let slot = match &expr {
                Expr::Column(column) => (0..self.slots.len()).find(|slot| slot_name(*slot) == column.name),
                _ => None,
            };
            Ok(slot.map_or_else(|| Transformed::no(expr), |slot| Transformed::yes(self.slots[slot].clone())))
        };
        expr.clone().transform(stands_for).map_or_else(|_| expr.clone(), |transformed| transformed.data)
    }

    /// The positions of the input that the slots read, and those of `outputs` that come from the input.
    fn needed(&self, outputs: &[usize]) -> Option<Vec<Vec<usize>>> {
        let schema = self.input.schema();
        let mut needed: Vec<usize> =
            outputs.iter().copied().filter(|column| *column < schema.fields().len()).collect();
        if let AiKind::Outer(OuterJoin { markers, .. }) = &self.kind {
            for marker in markers {
                needed.push(schema.index_of_column_by_name(None, marker)?);
            }
        }
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

impl PartialOrd for AiNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for AiNode {
    fn name(&self) -> &str {
        match self.kind {
            AiKind::Map => "AiMap",
            AiKind::Filter => "AiFilter",
            AiKind::Outer(_) => "AiOuterJoin",
            AiKind::Rank(_) => "AiRank",
        }
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.slots.clone()
    }

    /// Whatever can be decided without a model is decided first, below; what reads answers cannot be.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let names = |fields: &[Arc<Field>]| fields.iter().map(|field| field.name().clone()).collect();
        match &self.kind {
            AiKind::Map => self.program.calls.iter().map(|call| call.name.clone()).collect(),
            AiKind::Filter => HashSet::new(),
            // A condition on the side that may be absent is one on rows that are given back, too.
            AiKind::Outer(OuterJoin { join_type, markers: [left, _] }) => {
                let fields = self.schema.fields();
                let own = fields.iter().position(|field| field.name() == left).map_or(0, |marker| marker + 1);
                match join_type {
                    JoinType::Left => names(&fields[own..]),
                    JoinType::Right => names(&fields[..own]),
                    _ => names(fields),
                }
            }
            // Fewer rows would have other ranks.
            AiKind::Rank(_) => names(self.schema.fields()),
        }
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        if let AiKind::Outer(OuterJoin { join_type, .. }) = &self.kind {
            write!(f, "{join_type}, ")?;
        }
        write_calls(f, self)?;
        if let AiKind::Rank(Ranking { fetch: Some(fetch), .. }) = &self.kind {
            write!(f, ", fetch={fetch}")?;
        }
        for condition in self.program.conjuncts.iter().filter_map(|conjunct| conjunct.condition.as_ref()) {
            write!(f, ", keep {}", self.readable(condition))?;
        }
        Ok(())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (input, slots) = self.take(exprs, inputs)?;
        Self::new(self.kind.clone(), input, slots, Arc::clone(&self.program))
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        self.needed(output_columns)
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.kind == AiKind::Map
    }
}

fn write_calls(f: &mut fmt::Formatter, node: &AiNode) -> fmt::Result {
    for (i, call) in node.program.calls.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        write!(f, "{comma}{} := {}", call.name, call.written)?;
        if let Some(guard) = &call.guard {
            write!(f, " where {}", node.readable(guard))?;
        }
    }
    Ok(())
}
