//! Subqueries that call a model become joins, before calls are lifted: an operator of ours cannot run once for
//! each row of what is around it.
//!
//! DataFusion's own rules make the joins. They come before the optimizer here, because a lifted call would stand
//! in their way. Conditions with calls go from the subquery into the join, where only rows with a partner ask.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, TableReference};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinType, LogicalPlan, Projection, Subquery, SubqueryAlias,
};
use datafusion::optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig as _, OptimizerContext};

use super::has_call;
use crate::place::passed;

/// Aliases that the optimizer's own run does not reach: both number theirs from one.
const ALIASES_KEPT: usize = 1_000;

/// The analyzer's rule.
#[derive(Debug)]
pub struct JoinSubqueries;

impl AnalyzerRule for JoinSubqueries {
    fn name(&self) -> &str {
        "join_ai_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let needs = |node: &LogicalPlan| is_beside(node) || subqueries(node).into_iter().any(is_to_join);
        if !plan.exists(|node| Ok(needs(node)))? {
            return Ok(plan);
        }
        let rules = Optimizer::with_rules(vec![
            Arc::new(DecorrelatePredicateSubquery::new()),
            Arc::new(ScalarSubqueryToJoin::new()),
            Arc::new(DecorrelateLateralJoin::new()),
        ]);
        let context = OptimizerContext::new().with_max_passes(1);
        for _ in 0..ALIASES_KEPT {
            context.alias_generator().next("");
        }
        let plan = rules.optimize(plan, &context, |_, _| {})?;
        plan.transform_up(|node| match node {
            LogicalPlan::Join(join) => with_conditions(join),
            other => Ok(Transformed::no(other)),
        })
        .map(|transformed| transformed.data)
    }
}

/// The subqueries of a node's expressions that may have to become joins, and the node where it is one
/// (`LATERAL`).
fn subqueries(node: &LogicalPlan) -> Vec<Subquery> {
    let mut found = Vec::new();
    if let LogicalPlan::Subquery(subquery) = node {
        found.push(subquery.clone());
    }
    for expr in node.expressions() {
        let visited = expr.apply(|expr| {
            match expr {
                Expr::Exists(exists) => found.push(exists.subquery.clone()),
                Expr::InSubquery(inner) => found.push(inner.subquery.clone()),
                Expr::ScalarSubquery(subquery) if !subquery.outer_ref_columns.is_empty() => {
                    found.push(subquery.clone());
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        });
        // The walk itself fails in no way.
        debug_assert!(visited.is_ok());
    }
    found
}

/// Whether a condition asks a model and, in the same breath, for a partner: `ai_if(..) OR EXISTS (..)`.
fn is_beside(node: &LogicalPlan) -> bool {
    let conditions = node.expressions().into_iter().flat_map(split_conjunction_owned);
    conditions.filter(has_call).any(|condition| {
        let asks = |expr: &Expr| Ok(matches!(expr, Expr::Exists(_) | Expr::InSubquery(_)));
        condition.exists(asks).is_ok_and(|found| found)
    })
}

/// Whether a subquery calls a model.
fn is_to_join(subquery: Subquery) -> bool {
    let called = subquery.subquery.apply_with_subqueries(|node| {
        let is_found = node.expressions().iter().any(has_call);
        Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    called.is_ok_and(|recursion| recursion == TreeNodeRecursion::Stop)
}

/// A join that asks whether there is a partner, with the calling conditions of its other side as its own.
fn with_conditions(join: Join) -> Result<Transformed<LogicalPlan>> {
    let asks = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark);
    // What drops columns of the other side drops none that come out of the join.
    let right = passed(&join.right).unwrap_or(&join.right);
    let LogicalPlan::SubqueryAlias(side) = right else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    // Where a NULL of the other side counts (`NOT IN`), dropping rows of it later is not the same.
    let Some((side, moved)) = (if asks && !join.null_aware { opened(side)? } else { None }) else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    let conditions = join.filter.into_iter().chain(moved);
    let (on, join_type) = (join.on, join.join_type);
    let constraint = (join.join_constraint, join.null_equality, join.null_aware);
    Ok(Transformed::yes(LogicalPlan::Join(Join::try_new(
        join.left,
        Arc::new(side),
        on,
        conjunction(conditions),
        join_type,
        constraint.0,
        constraint.1,
        constraint.2,
    )?)))
}

/// The other side without its calling conditions, and these over its columns; `None`: it has none at its top.
fn opened(side: &SubqueryAlias) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
    let (exprs, below) = match &*side.input {
        LogicalPlan::Projection(projection) => (Some(projection.expr.clone()), &*projection.input),
        other => (None, other),
    };
    let LogicalPlan::Filter(filter) = below else { return Ok(None) };
    let conditions = split_conjunction_owned(filter.predicate.clone());
    let (calling, plain): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(has_call);
    if calling.is_empty() {
        return Ok(None);
    }
    let mut input = Arc::clone(&filter.input);
    if let Some(plain) = conjunction(plain) {
        input = Arc::new(LogicalPlan::Filter(Filter::try_new(plain, input)?));
    }
    let own = input.schema().columns();
    let mut exprs = exprs.unwrap_or_else(|| own.iter().cloned().map(Expr::Column).collect());
    // Two tables may have columns of one name, so each gets a name of its own.
    let mut named: Vec<(Column, String)> = Vec::new();
    let mut moved = Vec::with_capacity(calling.len());
    for condition in calling {
        for column in condition.column_refs() {
            if !named.iter().any(|(known, _)| known == column) {
                let name = format!("__ai_of_{}_{}", side.alias.table(), named.len());
                exprs.push(Expr::Column(column.clone()).alias(&name));
                named.push((column.clone(), name));
            }
        }
        moved.push(renamed(condition, &named, &side.alias)?);
    }
    let projection = LogicalPlan::Projection(Projection::try_new(exprs, input)?);
    let side = SubqueryAlias::try_new(Arc::new(projection), side.alias.clone())?;
    Ok(Some((LogicalPlan::SubqueryAlias(side), moved)))
}

/// A condition over the columns that the other side gives it.
fn renamed(condition: Expr, named: &[(Column, String)], alias: &TableReference) -> Result<Expr> {
    let renamed = condition.transform(|expr| {
        let found = match &expr {
            Expr::Column(column) => named.iter().find(|(known, _)| known == column),
            _ => None,
        };
        Ok(match found {
            Some((_, name)) => Transformed::yes(Expr::Column(Column::new(Some(alias.clone()), name))),
            None => Transformed::no(expr),
        })
    });
    renamed.map(|transformed| transformed.data)
}
