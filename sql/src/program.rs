//! What an AI operator does for each row: calls that may depend on one another, and conditions on their
//! answers. Plain data, shared by the logical and the physical operator.
//!
//! The expressions of a program see a schema of their own: the *slots* (columns of the input, or what the
//! optimizer made of them) and the answers of calls. So no rule of the optimizer meets a column that its
//! input lacks.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema as _};
use datafusion::logical_expr::Expr;

use crate::function::Function;
use crate::options::CallOptions;

/// The data of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd)]
pub enum CallInput {
    Value(Expr),
    /// The text of a prompt and its values.
    Prompt(String, Vec<Expr>),
}

/// One AI call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd)]
pub struct Call {
    pub function: Function,
    pub input: CallInput,
    /// The arguments after the data.
    pub rest: Vec<Expr>,
    pub options: CallOptions,
    /// Rows for which this is not true are not called: the answer would not be looked at.
    pub guard: Option<Expr>,
    /// The column of its answers.
    pub name: String,
    /// The call as it was written.
    pub written: String,
    /// Calls whose answers it needs come before it, in lower levels.
    pub level: usize,
}

/// Calls and the condition on their answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd)]
pub struct Conjunct {
    /// Calls of the program, by level.
    pub calls: Vec<usize>,
    /// Rows for which it is not true go.
    pub condition: Option<Expr>,
}

/// What an AI operator does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd)]
pub struct Program {
    /// Types of the slots.
    pub slots: Vec<DataType>,
    pub calls: Vec<Call>,
    pub conjuncts: Vec<Conjunct>,
}

/// The name of a slot in the program's schema.
pub fn slot_name(slot: usize) -> String {
    format!("__slot_{slot}")
}

impl Program {
    /// The columns that its expressions see: slots, then the answers of all calls.
    pub fn schema(&self) -> Arc<Schema> {
        let slots = self.slots.iter().enumerate();
        let slots = slots.map(|(slot, kind)| Field::new(slot_name(slot), kind.clone(), true));
        let answers =
            self.calls.iter().map(|call| Field::new(&call.name, call.function.output().data_type(), true));
        Arc::new(Schema::new(slots.chain(answers).collect::<Vec<_>>()))
    }

    /// The same, for planning.
    pub fn df_schema(&self) -> Result<DFSchema> {
        DFSchema::try_from(self.schema())
    }
}

/// Collects the slots of a program's expressions.
#[derive(Debug, Default)]
pub struct Slots {
    exprs: Vec<Expr>,
    types: Vec<DataType>,
}

impl Slots {
    /// Rewrites an expression so that it reads slots instead of the input's columns. Names in `answers` stay.
    pub fn bind(&mut self, expr: Expr, input: &DFSchema, answers: &[String]) -> Result<Expr> {
        expr.transform_down(|expr| match expr {
            Expr::Column(column) if column.relation.is_none() && answers.contains(&column.name) => {
                Ok(Transformed::new(Expr::Column(column), false, TreeNodeRecursion::Jump))
            }
            Expr::Column(column) => {
                let slot = self.slot(column, input)?;
                Ok(Transformed::new(
                    Expr::Column(Column::new_unqualified(slot_name(slot))),
                    true,
                    TreeNodeRecursion::Jump,
                ))
            }
            other => Ok(Transformed::no(other)),
        })
        .map(|transformed| transformed.data)
    }

    fn slot(&mut self, column: Column, input: &DFSchema) -> Result<usize> {
        let kind = input.field_from_column(&column)?.data_type().clone();
        let expr = Expr::Column(column);
        if let Some(slot) = self.exprs.iter().position(|known| *known == expr) {
            return Ok(slot);
        }
        self.exprs.push(expr);
        self.types.push(kind);
        Ok(self.exprs.len() - 1)
    }

    /// The expressions over the input, and their types.
    pub fn finish(self) -> (Vec<Expr>, Vec<DataType>) {
        (self.exprs, self.types)
    }
}
