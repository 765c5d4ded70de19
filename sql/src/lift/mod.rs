//! Lifting: every AI call leaves its expression and becomes work of an operator ([`crate::node`]), before
//! anything is optimised. What stays is a column.
//!
//! The engine of DataFusion would run calls of a filter for every input row, one batch after another, and
//! knows them in few places of a statement. Lifted calls stand where the statement has them: in `SELECT`,
//! `WHERE`, `GROUP BY`, `HAVING`, `ORDER BY`, join conditions, windows and arguments of aggregates, nested in
//! one another. Conditions without calls go below those with them.

mod calls;
mod subquery;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use calls::Calls;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef, Result, not_impl_err, plan_err};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Expr, Extension, Filter, Join, JoinType, LogicalPlan, Projection, Sort, Window, lit,
};
use datafusion::optimizer::AnalyzerRule;
pub use subquery::JoinSubqueries;

use crate::aggregate::{self, Lifted};
use crate::function;
use crate::node::{AiKind, AiNode, OuterJoin, Ranking};
use crate::options::CallOptions;

/// AI conditions of one operator.
pub(crate) const CONDITIONS_MAX: usize = 64;

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
        let (exprs, input) = self.without_subqueries(exprs, input)?;
        let mut calls = Calls::new(self);
        let exprs = exprs.into_iter().map(|expr| calls.lift(expr)).collect::<Result<Vec<_>>>()?;
        if calls.is_empty() {
            return Ok((exprs, input));
        }
        let (slots, program) = calls.program(input.schema(), Vec::new())?;
        let node = AiNode::map(input, slots, Arc::new(program))?;
        Ok((exprs, Arc::new(LogicalPlan::Extension(Extension { node: Arc::new(node) }))))
    }

    /// Puts the values of subqueries beside calls into columns of the input: an operator of ours cannot run one.
    fn without_subqueries(
        &self,
        exprs: Vec<Expr>,
        input: Arc<LogicalPlan>,
    ) -> Result<(Vec<Expr>, Arc<LogicalPlan>)> {
        let mut values: Vec<(Expr, String)> = Vec::new();
        let mut taken = |expr: Expr| {
            if !has_call(&expr) {
                return Ok(expr);
            }
            let taken = expr.transform_down(|expr| {
                if !matches!(expr, Expr::ScalarSubquery(_)) {
                    return Ok(Transformed::no(expr));
                }
                let known = values.iter().find(|(value, _)| *value == expr).map(|(_, name)| name.clone());
                let name = known.unwrap_or_else(|| {
                    values.push((expr, self.name()));
                    values[values.len() - 1].1.clone()
                });
                Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
            });
            taken.map(|transformed| transformed.data)
        };
        let exprs = exprs.into_iter().map(&mut taken).collect::<Result<Vec<_>>>()?;
        if values.is_empty() {
            return Ok((exprs, input));
        }
        let own = input.schema().columns().into_iter().map(Expr::Column);
        let all = own.chain(values.into_iter().map(|(value, name)| value.alias(name))).collect();
        Ok((exprs, Arc::new(LogicalPlan::Projection(Projection::try_new(all, input)?))))
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
        check_count(calling.len())?;
        let schema = Arc::clone(input.schema());
        let (calling, input) = self.without_subqueries(calling, Arc::new(input))?;
        let input = Arc::unwrap_or_clone(input);
        let mut calls = Calls::new(self);
        let conditions = calling.into_iter().map(|condition| calls.lift(condition)).collect::<Result<_>>()?;
        let (slots, program) = calls.program(input.schema(), conditions)?;
        let node = AiNode::filter(Arc::new(input), slots, Arc::new(program))?;
        by_name(LogicalPlan::Extension(Extension { node: Arc::new(node) }), &schema)
    }

    /// Grouping keys and arguments are computed below; names are given back above.
    fn aggregate(&self, node: Aggregate) -> Result<LogicalPlan> {
        let schema = Arc::clone(&node.schema);
        let groups = node.group_expr.len();
        let exprs = node.group_expr.into_iter().chain(node.aggr_expr).collect();
        let (mut exprs, input) = self.below(exprs, node.input)?;
        let aggregates = exprs.split_off(groups);
        let mut calls = Calls::new(self);
        // Aggregates that have no AI come as they are; equal lists of texts are made once.
        let mut made: Vec<Expr> = Vec::with_capacity(aggregates.len());
        let mut lists: Vec<(usize, usize, Lifted)> = Vec::new();
        let mut places = Vec::with_capacity(aggregates.len());
        for expr in aggregates {
            let place = match aggregate::lift(expr) {
                Ok(lifted) => {
                    let known = lists.iter().find(|(.., known)| known.list == lifted.list);
                    let place = known.map_or(made.len(), |(_, place, _)| *place);
                    if place == made.len() {
                        made.push(lifted.list.clone().alias(self.name()));
                    }
                    lists.push((places.len(), place, lifted));
                    place
                }
                Err(expr) => {
                    made.push(expr);
                    made.len() - 1
                }
            };
            places.push(place);
        }
        let made_count = made.len();
        let lifted = LogicalPlan::Aggregate(Aggregate::try_new(input, exprs, made)?);
        if lists.is_empty() {
            return by_position(lifted, &schema);
        }
        let all: Vec<Expr> = lifted.schema().columns().into_iter().map(Expr::Column).collect();
        let first = all.len() - made_count;
        let mut columns: Vec<Expr> = all[..first].to_vec();
        columns.extend(places.into_iter().map(|place| all[first + place].clone()));
        for (position, place, Lifted { function, rest, .. }) in lists {
            columns[first + position] = calls.over(function, all[first + place].clone(), rest)?;
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
        let first = node.expr.first().and_then(|key| function::called(&key.expr));
        if let Some((function, arguments)) = first.filter(|(function, _)| function.is_rank()) {
            let arguments = arguments.to_vec();
            return by_name(self.ranked(node, function, &arguments)?, &schema);
        }
        let exprs = node.expr.iter().map(|sort| sort.expr.clone()).collect();
        let (exprs, input) = self.below(exprs, node.input)?;
        let sorted = node.expr.into_iter().zip(exprs).map(|(sort, expr)| sort.with_expr(expr)).collect();
        by_name(LogicalPlan::Sort(Sort { expr: sorted, input, fetch: node.fetch }), &schema)
    }

    /// A sort whose first key compares texts: they are ranked below it.
    fn ranked(&self, node: Sort, function: function::Function, arguments: &[Expr]) -> Result<LogicalPlan> {
        let key = &node.expr[0];
        if !key.asc {
            return plan_err!(
                "ai_rank: the row that fits best has rank 1 and comes first; DESC has no meaning for it"
            );
        }
        let (written, nulls_first) = (key.expr.human_display().to_string(), key.nulls_first);
        let (values, options) = CallOptions::take(function.name, arguments)?;
        if values.len() != 2 {
            return plan_err!("ai_rank: takes a text and a criterion, got {} arguments", values.len());
        }
        let keys = node.expr[1..].iter().map(|key| key.expr.clone());
        let (mut exprs, input) = self.below(values.into_iter().chain(keys).collect(), node.input)?;
        let keys = exprs.split_off(2);
        let mut calls = Calls::new(self);
        let (text, criterion) = (exprs.swap_remove(0), exprs.swap_remove(0));
        let rank = calls.rank(function, (text, criterion), options, written)?;
        let (slots, program) = calls.program(input.schema(), Vec::new())?;
        let kind = AiKind::Rank(Ranking { fetch: None, nulls_first });
        let ranked = AiNode::new(kind, input, slots, Arc::new(program))?;
        let input = Arc::new(LogicalPlan::Extension(Extension { node: Arc::new(ranked) }));
        let keys = std::iter::once(rank).chain(keys);
        let sorted = node.expr.into_iter().zip(keys).map(|(sort, expr)| sort.with_expr(expr)).collect();
        Ok(LogicalPlan::Sort(Sort { expr: sorted, input, fetch: node.fetch }))
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
        let (left, right): (Vec<Expr>, Vec<Expr>) = std::mem::take(&mut node.on).into_iter().unzip();
        let (left, left_input) = self.below(left, Arc::clone(&node.left))?;
        let (right, right_input) = self.below(right, Arc::clone(&node.right))?;
        node.on = left.into_iter().zip(right).collect();
        (node.left, node.right) = (left_input, right_input);
        let (calling, plain) = part(node.filter.take().map_or_else(Vec::new, split_conjunction_owned));
        let is_of = |condition: &Expr, side: &Arc<LogicalPlan>| {
            condition.column_refs().iter().all(|column| side.schema().has_column(column))
        };
        let has_pairs =
            calling.iter().any(|condition| !is_of(condition, &node.left) && !is_of(condition, &node.right));
        let joined = match node.join_type {
            JoinType::Inner => {
                node.filter = conjunction(plain);
                self.keep(joined(node)?, Vec::new(), calling)?
            }
            JoinType::Left | JoinType::Right | JoinType::Full if has_pairs => {
                node.filter = conjunction(plain);
                self.outer(node, calling)?.0
            }
            JoinType::LeftSemi
            | JoinType::LeftAnti
            | JoinType::LeftMark
            | JoinType::RightSemi
            | JoinType::RightAnti
            | JoinType::RightMark
                if !calling.is_empty() =>
            {
                node.filter = conjunction(plain);
                return self.partnered(node, calling);
            }
            _ => {
                let mut plain = plain;
                for condition in calling {
                    let side = if is_of(&condition, &node.left) { &mut node.left } else { &mut node.right };
                    let (exprs, input) = self.below(vec![condition], Arc::clone(side))?;
                    *side = input;
                    plain.extend(exprs);
                }
                node.filter = conjunction(plain);
                joined(node)?
            }
        };
        by_name(joined, &schema)
    }

    /// An outer join whose pairs a model decides: conditions without calls join first, and what is left without
    /// a partner is given back. With the names of the last columns of either side, by which these are told apart.
    fn outer(&self, mut node: Join, calling: Vec<Expr>) -> Result<(LogicalPlan, [String; 2])> {
        let preserves = |side: JoinType| [side, JoinType::Full].contains(&node.join_type);
        let (left, left_marker) = self.marked(node.left, preserves(JoinType::Left))?;
        let (right, right_marker) = self.marked(node.right, preserves(JoinType::Right))?;
        (node.left, node.right) = (left, right);
        let join_type = node.join_type;
        let joined = joined(node)?;
        let is_there = |marker: &String| Expr::Column(Column::new_unqualified(marker)).is_not_null();
        let is_pair = is_there(&left_marker).and(is_there(&right_marker));
        let mut calls = Calls::new(self);
        let mut conditions = vec![is_pair.clone()];
        for condition in calling {
            conditions.push(calls.lift_where(condition, &is_pair)?);
        }
        check_count(conditions.len())?;
        let (slots, program) = calls.program(joined.schema(), conditions)?;
        let markers = [left_marker, right_marker];
        let kind = AiKind::Outer(OuterJoin { join_type, markers: markers.clone() });
        let node = AiNode::new(kind, Arc::new(joined), slots, Arc::new(program))?;
        Ok((LogicalPlan::Extension(Extension { node: Arc::new(node) }), markers))
    }

    /// A join that asks of each row whether it has a partner, which a model decides: its pairs, then each row
    /// once.
    fn partnered(&self, mut node: Join, calling: Vec<Expr>) -> Result<LogicalPlan> {
        if node.null_aware {
            return not_impl_err!(
                "an AI condition over both sides of NOT IN; write NOT EXISTS (SELECT .. WHERE ..)"
            );
        }
        let schema = Arc::clone(&node.schema);
        let is_right =
            matches!(node.join_type, JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark);
        if is_right {
            std::mem::swap(&mut node.left, &mut node.right);
            node.on.iter_mut().for_each(|(left, right)| std::mem::swap(left, right));
        }
        let is_semi = matches!(node.join_type, JoinType::LeftSemi | JoinType::RightSemi);
        let is_anti = matches!(node.join_type, JoinType::LeftAnti | JoinType::RightAnti);
        let own = node.left.schema().columns();
        let pairs = if is_semi {
            let (left, marker) = self.marked(node.left, true)?;
            let on = (node.on, node.filter);
            let join = Join::try_new(
                left,
                node.right,
                on.0,
                on.1,
                JoinType::Inner,
                node.join_constraint,
                node.null_equality,
                false,
            )?;
            (self.keep(LogicalPlan::Join(join), Vec::new(), calling)?, marker, None)
        } else {
            node.join_type = JoinType::Left;
            let (pairs, [left, right]) = self.outer(node, calling)?;
            (pairs, left, Some(right))
        };
        let (pairs, row, partner) = pairs;
        let groups = own.iter().cloned().map(Expr::Column);
        let groups = groups.chain([Expr::Column(Column::new_unqualified(row))]).collect();
        let counted =
            partner.map(|partner| count(Expr::Column(Column::new_unqualified(partner))).alias(self.name()));
        let rows = LogicalPlan::Aggregate(Aggregate::try_new(
            Arc::new(pairs),
            groups,
            counted.into_iter().collect(),
        )?);
        let Some(partners) = rows.schema().columns().get(own.len() + 1).cloned().map(Expr::Column) else {
            return positions(rows, &schema, 0..own.len());
        };
        if is_anti {
            let alone = partners.eq(lit(0_i64));
            let alone = LogicalPlan::Filter(Filter::try_new(alone, Arc::new(rows))?);
            return positions(alone, &schema, 0..own.len());
        }
        let (qualifier, mark) = schema.qualified_field(own.len());
        let mark = partners.gt(lit(0_i64)).alias_qualified(qualifier.cloned(), mark.name());
        let exprs = own.into_iter().map(Expr::Column).chain([mark]).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows))?))
    }

    /// A side of a join with a last column that tells its rows from those that an outer join fills in, and from
    /// one another where they may have to be given back.
    fn marked(&self, side: Arc<LogicalPlan>, is_preserved: bool) -> Result<(Arc<LogicalPlan>, String)> {
        let name = self.name();
        let marked = if is_preserved {
            LogicalPlan::Window(Window::try_new(vec![row_number().alias(&name)], side)?)
        } else {
            let columns = side.schema().columns().into_iter().map(Expr::Column);
            let exprs = columns.chain([lit(true).alias(&name)]).collect();
            LogicalPlan::Projection(Projection::try_new(exprs, side)?)
        };
        Ok((Arc::new(marked), name))
    }
}

/// A join over the inputs that it has now.
fn joined(node: Join) -> Result<LogicalPlan> {
    Ok(LogicalPlan::Join(Join::try_new(
        node.left,
        node.right,
        node.on,
        node.filter,
        node.join_type,
        node.join_constraint,
        node.null_equality,
        node.null_aware,
    )?))
}

/// Rows note the conditions that hold as bits.
fn check_count(conditions: usize) -> Result<()> {
    if conditions > CONDITIONS_MAX {
        return plan_err!("{conditions} AI conditions in one place: at most {CONDITIONS_MAX} can be");
    }
    Ok(())
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
