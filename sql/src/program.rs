//! What an AI operator does for each row: calls that may depend on one another, and conditions on their
//! answers. Plain data, shared by the logical and the physical operator.
//!
//! The expressions of a program see a schema of their own: the *slots* (columns of the input, or what the
//! optimizer made of them) and the answers of calls. So no rule of the optimizer meets a column that its
//! input lacks.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema as _};
use datafusion::logical_expr::Expr;

use crate::function::Function;
use crate::options::CallOptions;
use crate::prompt::PromptSource;

/// The data of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd)]
pub enum CallInput {
    Value(Expr),
    /// A prompt and its values.
    Prompt(PromptSource, Vec<Expr>),
}

/// One AI call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd)]
pub struct AiCall {
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
    pub calls: Vec<AiCall>,
    pub conjuncts: Vec<Conjunct>,
}

/// Begins the names of slots.
const SLOT: &str = "__slot_";

/// The name of a slot in the program's schema.
pub fn slot_name(slot: usize) -> String {
    format!("{SLOT}{slot}")
}

/// The slot of a name.
fn slot_number(name: &str) -> Option<usize> {
    name.strip_prefix(SLOT)?.parse().ok()
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

    /// The calls whose answers are wanted, those that these need in turn included, in their order.
    pub fn needed(&self, wanted: impl Fn(&str) -> bool) -> Vec<usize> {
        needed(&self.calls, wanted)
    }

    /// The program of some of its calls alone, with the slots that they read.
    pub fn keep(&self, calls: &[usize], slots: &[Expr]) -> Result<(Vec<Expr>, Self)> {
        let all = vec![Conjunct { calls: (0..calls.len()).collect(), condition: None }];
        self.part(calls, all, slots)
    }

    /// The program of some of its conditions alone, with the slots that they read.
    pub fn select(&self, conjuncts: &[usize], slots: &[Expr]) -> Result<(Vec<Expr>, Self)> {
        let mut calls: Vec<usize> =
            conjuncts.iter().flat_map(|place| &self.conjuncts[*place].calls).copied().collect();
        calls.sort_unstable();
        calls.dedup();
        let own = |call: &usize| calls.iter().position(|kept| kept == call);
        let conjuncts = conjuncts.iter().map(|place| {
            let Conjunct { calls, condition } = &self.conjuncts[*place];
            Conjunct { calls: calls.iter().filter_map(own).collect(), condition: condition.clone() }
        });
        self.part(&calls, conjuncts.collect(), slots)
    }

    /// Some of its calls with these conditions on them.
    fn part(&self, calls: &[usize], conjuncts: Vec<Conjunct>, slots: &[Expr]) -> Result<(Vec<Expr>, Self)> {
        let mut kept: Vec<usize> = Vec::new();
        let mut own = Self {
            slots: Vec::new(),
            calls: calls.iter().map(|call| self.calls[*call].clone()).collect(),
            conjuncts,
        };
        own.map_slots(&mut |slot| {
            kept.iter().position(|known| *known == slot).unwrap_or_else(|| {
                kept.push(slot);
                kept.len() - 1
            })
        })?;
        own.slots = kept.iter().map(|slot| self.slots[*slot].clone()).collect();
        Ok((kept.iter().map(|slot| slots[*slot].clone()).collect(), own))
    }

    /// The conditions of two programs over one input, as one.
    pub fn merged(&self, slots: &[Expr], other: &Self, others: &[Expr]) -> Result<(Vec<Expr>, Self)> {
        let (first, mut own) = (self.slots.len(), other.clone());
        own.map_slots(&mut |slot| first + slot)?;
        let calls = self.calls.len();
        let moved = own.conjuncts.into_iter().map(|conjunct| Conjunct {
            calls: conjunct.calls.into_iter().map(|call| calls + call).collect(),
            condition: conjunct.condition,
        });
        let program = Self {
            slots: self.slots.iter().chain(&own.slots).cloned().collect(),
            calls: self.calls.iter().cloned().chain(own.calls).collect(),
            conjuncts: self.conjuncts.iter().cloned().chain(moved).collect(),
        };
        Ok((slots.iter().chain(others).cloned().collect(), program))
    }

    /// The slots that a condition reads, those of the calls that it needs included.
    pub fn slots_of(&self, conjunct: &Conjunct) -> Vec<usize> {
        let calls = conjunct.calls.iter().flat_map(|call| self.calls[*call].exprs());
        let columns = calls.chain(&conjunct.condition).flat_map(Expr::column_refs);
        let names: HashSet<&str> = columns.map(|column| column.name.as_str()).collect();
        (0..self.slots.len()).filter(|slot| names.contains(slot_name(*slot).as_str())).collect()
    }

    /// Renumbers the slots that its expressions read.
    fn map_slots(&mut self, f: &mut dyn FnMut(usize) -> usize) -> Result<()> {
        let mut renamed = |expr: Expr| {
            expr.transform(|expr| {
                let slot = match &expr {
                    Expr::Column(column) => slot_number(&column.name),
                    _ => None,
                };
                Ok(slot.map_or(Transformed::no(expr), |slot| {
                    Transformed::yes(Expr::Column(Column::new_unqualified(slot_name(f(slot)))))
                }))
            })
            .map(|transformed| transformed.data)
        };
        for call in &mut self.calls {
            call.map_exprs(&mut renamed)?;
        }
        for condition in self.conjuncts.iter_mut().filter_map(|conjunct| conjunct.condition.as_mut()) {
            *condition = renamed(std::mem::take(condition))?;
        }
        Ok(())
    }

    /// The same, for planning.
    pub fn df_schema(&self) -> Result<DFSchema> {
        DFSchema::try_from(self.schema())
    }
}

impl AiCall {
    /// The expressions that it reads.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let input = match &self.input {
            CallInput::Value(value) => std::slice::from_ref(value),
            CallInput::Prompt(_, values) => values,
        };
        input.iter().chain(&self.rest).chain(&self.guard)
    }

    /// Rewrites the expressions that it reads.
    pub fn map_exprs(&mut self, f: &mut dyn FnMut(Expr) -> Result<Expr>) -> Result<()> {
        let input = match &mut self.input {
            CallInput::Value(value) => std::slice::from_mut(value),
            CallInput::Prompt(_, values) => values,
        };
        for expr in input.iter_mut().chain(&mut self.rest).chain(&mut self.guard) {
            *expr = f(std::mem::take(expr))?;
        }
        Ok(())
    }
}

/// The calls whose answers are wanted, those that these need in turn included, in their order.
pub fn needed(calls: &[AiCall], wanted: impl Fn(&str) -> bool) -> Vec<usize> {
    let mut further: HashSet<&str> = HashSet::new();
    let mut needed = Vec::new();
    // Calls come after those that they need.
    for (place, call) in calls.iter().enumerate().rev() {
        if !wanted(&call.name) && !further.contains(call.name.as_str()) {
            continue;
        }
        needed.push(place);
        for expr in call.exprs() {
            further.extend(expr.column_refs().into_iter().map(|column| column.name.as_str()));
        }
    }
    needed.reverse();
    needed
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
