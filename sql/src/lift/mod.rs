//! Lifting: every AI call leaves its expression and becomes work of an operator ([`crate::node`]), before
//! anything is optimised. What stays is a column.
//!
//! The engine of DataFusion would run calls of a filter for every input row, one batch after another, and
//! knows them in few places of a statement. Lifted calls stand where the statement has them: in `SELECT`,
//! `WHERE`, `GROUP BY`, `HAVING`, `ORDER BY`, join conditions, windows and arguments of aggregates, nested in
//! one another. Conditions without calls go below those with them.

mod calls;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use calls::Calls;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef, Result, not_impl_err, plan_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr, Extension, Filter, Join, JoinType, LogicalPlan, Projection, Sort, Window,
};
use datafusion::optimizer::AnalyzerRule;

use crate::aggregate::{self, Lifted};
use crate::function;
use crate::node::AiNode;

/// AI conditions of one filter: rows note the ones that hold as bits.
const CONDITIONS_MAX: usize = 64;

/// The analyzer's rule.
#[derive(Debug, Default)]
pub struct Lift {
    /// Answers get names of their own in the whole session.
    next: AtomicUsize,
}

impl AnalyzerRule for Lift {
    fn name(&self) -> &str {
        "lift_ai_calls"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| self.node(node)).map(|transformed| transformed.data)
    }
}

/// Whether an expression calls a model.
pub fn has_call(expr: &Expr) -> bool {
    let mut found = false;
    let visited = expr.apply(|expr| {
        found |= function::called(expr).is_some() || aggregate::called(expr).is_some();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found && visited.is_ok()
}

impl Lift {
    /// The name of the next answer.
    fn name(&self) -> String {
        format!("__ai_{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn node(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if !plan.expressions().iter().any(has_call) {
            return Ok(Transformed::no(plan));
        }
        let lifted = match plan {
            LogicalPlan::Projection(node) => self.projection(node)?,
            LogicalPlan::Filter(node) => self.filter(node)?,
            LogicalPlan::Aggregate(node) => self.aggregate(node)?,
            LogicalPlan::Sort(node) => self.sort(node)?,
            LogicalPlan::Window(node) => self.window(node)?,
            LogicalPlan::Join(node) => self.join(node)?,
            // An extension's slots, and statements whose input is lifted already.
            other => return Ok(Transformed::no(other)),
        };
        Ok(Transformed::yes(lifted))
    }

    /// Puts the calls of expressions under them. Returns what the expressions read now.
    fn below(&self, exprs: Vec<Expr>, input: Arc<LogicalPlan>) -> Result<(Vec<Expr>, Arc<LogicalPlan>)> {
        let mut calls = Calls::new(self);
        let exprs = exprs.into_iter().map(|expr| calls.lift(expr)).collect::<Result<Vec<_>>>()?;
        if calls.is_empty() {
            return Ok((exprs, input));
        }
        let (slots, program) = calls.program(input.schema(), Vec::new())?;
        let node = AiNode::map(input, slots, Arc::new(program))?;
        Ok((exprs, Arc::new(LogicalPlan::Extension(Extension { node: Arc::new(node) }))))
    }

    fn projection(&self, node: Projection) -> Result<LogicalPlan> {
        let names = NamePreserver::new_for_projection();
        let saved: Vec<_> = node.expr.iter().map(|expr| names.save(expr)).collect();
        let (exprs, input) = self.below(node.expr, node.input)?;
        let exprs = exprs.into_iter().zip(saved).map(|(expr, name)| name.restore(expr)).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, input)?))
    }

    fn filter(&self, node: Filter) -> Result<LogicalPlan> {
        let (calling, plain) = part(split_conjunction_owned(node.predicate));
        self.keep(Arc::unwrap_or_clone(node.input), plain, calling)
    }

    /// Conditions without calls first, then those with.
    fn keep(&self, input: LogicalPlan, plain: Vec<Expr>, calling: Vec<Expr>) -> Result<LogicalPlan> {
        let input = match conjunction(plain) {
            Some(condition) => LogicalPlan::Filter(Filter::try_new(condition, Arc::new(input))?),
            None => input,
        };
        if calling.is_empty() {
            return Ok(input);
        }
        if calling.len() > CONDITIONS_MAX {
            return plan_err!(
                "{} AI conditions in one place: at most {CONDITIONS_MAX} can be",
                calling.len()
            );
        }
        let mut calls = Calls::new(self);
        let conditions = calling.into_iter().map(|condition| calls.lift(condition)).collect::<Result<_>>()?;
        let (slots, program) = calls.program(input.schema(), conditions)?;
        let node = AiNode::filter(Arc::new(input), slots, Arc::new(program))?;
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
    }

    /// Grouping keys and arguments are computed below; names are given back above.
    fn aggregate(&self, node: Aggregate) -> Result<LogicalPlan> {
        let schema = Arc::clone(&node.schema);
        let groups = node.group_expr.len();
        let exprs = node.group_expr.into_iter().chain(node.aggr_expr).collect();
        let (mut exprs, input) = self.below(exprs, node.input)?;
        let aggregates = exprs.split_off(groups);
        let mut calls = Calls::new(self);
        let mut lists: Vec<(usize, Lifted)> = Vec::new();
        let aggregates =
            aggregates.into_iter().enumerate().map(|(place, expr)| match aggregate::lift(expr) {
                Ok(lifted) => {
                    let list = lifted.list.clone().alias(self.name());
                    lists.push((groups + place, lifted));
                    list
                }
                Err(expr) => expr,
            });
        let aggregates = aggregates.collect();
        let lifted = LogicalPlan::Aggregate(Aggregate::try_new(input, exprs, aggregates)?);
        let mut columns: Vec<Expr> = lifted.schema().columns().into_iter().map(Expr::Column).collect();
        for (position, Lifted { function, rest, .. }) in lists {
            columns[position] = calls.over(function, columns[position].clone(), rest)?;
        }
        if calls.is_empty() {
            return by_position(lifted, &schema);
        }
        let (slots, program) = calls.program(lifted.schema(), Vec::new())?;
        let node = AiNode::map(Arc::new(lifted), slots, Arc::new(program))?;
        let lifted = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        let named = columns.into_iter().zip(schema.iter());
        let exprs =
            named.map(|(expr, (qualifier, field))| expr.alias_qualified(qualifier.cloned(), field.name()));
        Ok(LogicalPlan::Projection(Projection::try_new(exprs.collect(), Arc::new(lifted))?))
    }

    fn sort(&self, node: Sort) -> Result<LogicalPlan> {
        let schema = Arc::clone(node.input.schema());
        let exprs = node.expr.iter().map(|sort| sort.expr.clone()).collect();
        let (exprs, input) = self.below(exprs, node.input)?;
        let sorted = node.expr.into_iter().zip(exprs).map(|(sort, expr)| sort.with_expr(expr)).collect();
        by_name(LogicalPlan::Sort(Sort { expr: sorted, input, fetch: node.fetch }), &schema)
    }

    fn window(&self, node: Window) -> Result<LogicalPlan> {
        let (schema, inputs) = (Arc::clone(&node.schema), node.input.schema().fields().len());
        let (exprs, input) = self.below(node.window_expr, node.input)?;
        let added = input.schema().fields().len() - inputs;
        let lifted = LogicalPlan::Window(Window::try_new(exprs, input)?);
        // The answers stand between the columns of the input and those of the windows.
        let kept = (0..inputs).chain(inputs + added..lifted.schema().fields().len());
        positions(lifted, &schema, kept)
    }

    fn join(&self, mut node: Join) -> Result<LogicalPlan> {
        let schema = Arc::clone(&node.schema);
        let (left, right): (Vec<Expr>, Vec<Expr>) = node.on.into_iter().unzip();
        let (left, left_input) = self.below(left, node.left)?;
        let (right, right_input) = self.below(right, node.right)?;
        node.on = left.into_iter().zip(right).collect();
        let (calling, mut plain) = part(node.filter.take().map_or_else(Vec::new, split_conjunction_owned));
        let (mut left_input, mut right_input) = (left_input, right_input);
        let mut above = Vec::new();
        for condition in calling {
            let of_one = |input: &Arc<LogicalPlan>| {
                condition.column_refs().iter().all(|column| input.schema().has_column(column))
            };
            if node.join_type == JoinType::Inner {
                above.push(condition);
            } else if of_one(&left_input) {
                let (exprs, input) = self.below(vec![condition], left_input)?;
                (left_input, plain) = (input, plain.into_iter().chain(exprs).collect());
            } else if of_one(&right_input) {
                let (exprs, input) = self.below(vec![condition], right_input)?;
                (right_input, plain) = (input, plain.into_iter().chain(exprs).collect());
            } else {
                return not_impl_err!(
                    "an AI condition over both sides of a {} join; write it as an inner join, and join its \
                     rows to the outer side by a key",
                    node.join_type
                );
            }
        }
        let joined = LogicalPlan::Join(Join::try_new(
            left_input,
            right_input,
            node.on,
            conjunction(plain),
            node.join_type,
            node.join_constraint,
            node.null_equality,
            node.null_aware,
        )?);
        by_name(self.keep(joined, Vec::new(), above)?, &schema)
    }
}

/// Parts conditions into those that call a model and those that do not.
fn part(conditions: Vec<Expr>) -> (Vec<Expr>, Vec<Expr>) {
    conditions.into_iter().partition(has_call)
}

/// The columns of `schema` by their names, out of a plan that has more.
fn by_name(plan: LogicalPlan, schema: &DFSchemaRef) -> Result<LogicalPlan> {
    if plan.schema().fields().len() == schema.fields().len() {
        return Ok(plan);
    }
    let exprs =
        schema.iter().map(|(qualifier, field)| Expr::Column(Column::from((qualifier, field)))).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
}

/// Gives a plan's columns the names of `schema`, in the same order.
fn by_position(plan: LogicalPlan, schema: &DFSchemaRef) -> Result<LogicalPlan> {
    let all = 0..plan.schema().fields().len();
    positions(plan, schema, all)
}

fn positions(
    plan: LogicalPlan,
    schema: &DFSchemaRef,
    kept: impl Iterator<Item = usize>,
) -> Result<LogicalPlan> {
    let exprs = kept
        .zip(schema.iter())
        .map(|(position, (qualifier, field))| {
            let column = Column::from(plan.schema().qualified_field(position));
            if (column.relation.as_ref(), &column.name) == (qualifier, field.name()) {
                return Expr::Column(column);
            }
            Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
        })
        .collect();
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?))
}
