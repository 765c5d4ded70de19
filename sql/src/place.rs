//! Placement: where AI conditions are decided, so that fewer distinct prompts are asked.
//!
//! A condition on one table costs a prompt for each distinct text of it, however often a join repeats the text:
//! answers are remembered. So it stays above a join that drops rows, where only rows with a partner ask. Beside
//! a condition on pairs it is decided in the same operator, which tries first what costs least for what it
//! drops; and where the join has no condition of its own, so that every row has partners, it goes below, and
//! fewer pairs are made.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, Extension, Join, JoinType, LogicalPlan, Sort};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::lift::CONDITIONS_MAX;
use crate::node::{AiKind, AiNode, OuterJoin, Ranking};
use crate::program::Conjunct;
use crate::settings::AiSettings;

/// Places AI filters; `SET relserve.place_filters = false` leaves them where they were written.
#[derive(Debug)]
pub struct PlaceFilters;

impl OptimizerRule for PlaceFilters {
    fn name(&self) -> &str {
        "place_ai_filters"
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !config.options().extensions.get::<AiSettings>().is_none_or(|settings| settings.place_filters) {
            return Ok(Transformed::no(plan));
        }
        walk(plan, false)
    }
}

/// Tells a ranking how many rows are wanted of it.
#[derive(Debug)]
pub struct LimitRankings;

impl OptimizerRule for LimitRankings {
    fn name(&self) -> &str {
        "limit_ai_rankings"
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down_with_subqueries(|plan| {
            let LogicalPlan::Sort(Sort { expr, input, fetch: Some(fetch) }) = &plan else {
                return Ok(Transformed::no(plan));
            };
            let key = expr.first().map(|key| &key.expr);
            let limited = match key {
                Some(Expr::Column(column)) => limited(input, &column.name, *fetch)?,
                _ => None,
            };
            match limited {
                None => Ok(Transformed::no(plan)),
                Some(input) => plan.with_new_exprs(plan.expressions(), vec![input]).map(Transformed::yes),
            }
        })
    }
}

/// The plan with a bound on the ranking that gives a column; `None`: there is nothing to change.
fn limited(plan: &LogicalPlan, rank: &str, fetch: usize) -> Result<Option<LogicalPlan>> {
    if let Some(node) = ai_node(plan)
        && let AiKind::Rank(Ranking { fetch: None, nulls_first }) = node.kind
    {
        if node.program.calls.iter().all(|call| call.name != rank) {
            return Ok(None);
        }
        let kind = AiKind::Rank(Ranking { fetch: Some(fetch), nulls_first });
        let (input, slots) = (Arc::clone(&node.input), node.slots.clone());
        return extension(AiNode::new(kind, input, slots, Arc::clone(&node.program))?).map(Some);
    }
    match (plan, passed(plan)) {
        (_, Some(input)) => match limited(input, rank, fetch)? {
            Some(input) => plan.with_new_exprs(plan.expressions(), vec![input]).map(Some),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Places the filters of a plan from the top down. `is_limited`: a `LIMIT` above wants few rows, so that nothing
/// is to be asked that the join may never reach.
fn walk(plan: LogicalPlan, is_limited: bool) -> Result<Transformed<LogicalPlan>> {
    let mut placed = Transformed::no(plan);
    while let Some(plan) = merged(&placed.data)? {
        placed = Transformed::yes(plan);
    }
    if !is_limited && let Some(plan) = sunk(&placed.data)? {
        placed = Transformed::yes(plan);
    }
    let is_limited = match &placed.data {
        LogicalPlan::Limit(_) => true,
        LogicalPlan::Sort(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Distinct(_) => false,
        _ => is_limited,
    };
    placed
        .transform_data(|plan| plan.map_children(|child| walk(child, is_limited)))?
        .transform_data(|plan| plan.map_subqueries(|subquery| walk(subquery, false)))
}

/// Two filters as one: their conditions are tried in the order that asks least.
fn merged(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let Some(upper) = ai_filter(plan) else { return Ok(None) };
    replaced(&upper.input, &mut |below| {
        let Some(lower) = ai_filter(below) else { return Ok(None) };
        if lower.program.conjuncts.len() + upper.program.conjuncts.len() > CONDITIONS_MAX {
            return Ok(None);
        }
        let (slots, program) = lower.program.merged(&lower.slots, &upper.program, &upper.slots)?;
        extension(AiNode::filter(Arc::clone(&lower.input), slots, Arc::new(program))?).map(Some)
    })
}

/// A filter whose conditions on one side of a join are decided below it.
fn sunk(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let Some(filter) = ai_filter(plan) else { return Ok(None) };
    let mut rest: Vec<usize> = Vec::new();
    let below = replaced(&filter.input, &mut |below| {
        let (outer, join, preserved) = match (below, ai_node(below)) {
            (LogicalPlan::Join(join), _) if is_product(join) => (None, join, [true, true]),
            (_, Some(outer)) => match (&outer.kind, &*outer.input) {
                (AiKind::Outer(OuterJoin { join_type, .. }), LogicalPlan::Join(join)) => {
                    (Some(outer), join, [*join_type == JoinType::Left, *join_type == JoinType::Right])
                }
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let sides = [join.left.schema(), join.right.schema()];
        let mut own: [Vec<usize>; 2] = Default::default();
        for (place, conjunct) in filter.program.conjuncts.iter().enumerate() {
            match (0..2).find(|side| preserved[*side] && is_of(filter, conjunct, sides[*side])) {
                Some(side) => own[side].push(place),
                None => rest.push(place),
            }
        }
        // Of a product of tables whose pairs nobody asks about, one may be empty: then nothing is to be asked.
        if own.iter().all(Vec::is_empty) || (outer.is_none() && rest.is_empty()) {
            return Ok(None);
        }
        let [left, right] = own;
        let mut join = join.clone();
        join.left = kept(filter, &left, join.left)?;
        join.right = kept(filter, &right, join.right)?;
        let join = LogicalPlan::Join(join);
        match outer {
            None => Ok(Some(join)),
            Some(outer) => {
                let (slots, program) = (outer.slots.clone(), Arc::clone(&outer.program));
                extension(AiNode::new(outer.kind.clone(), Arc::new(join), slots, program)?).map(Some)
            }
        }
    })?;
    let Some(below) = below else { return Ok(None) };
    Ok(Some(Arc::unwrap_or_clone(kept(filter, &rest, Arc::new(below))?)))
}

/// An input with some conditions of a filter on it.
fn kept(filter: &AiNode, conjuncts: &[usize], input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
    if conjuncts.is_empty() {
        return Ok(input);
    }
    let (slots, program) = filter.program.select(conjuncts, &filter.slots)?;
    extension(AiNode::filter(input, slots, Arc::new(program))?).map(Arc::new)
}

/// Whether a condition reads columns of one side alone.
fn is_of(filter: &AiNode, conjunct: &Conjunct, side: &DFSchema) -> bool {
    let slots = filter.program.slots_of(conjunct);
    let has_all =
        |slot: &usize| filter.slots[*slot].column_refs().iter().all(|column| side.has_column(column));
    !slots.is_empty() && slots.iter().all(has_all)
}

/// Whether a join pairs each row with each.
fn is_product(join: &Join) -> bool {
    join.join_type == JoinType::Inner && join.on.is_empty() && join.filter.is_none()
}

/// The plan with the node below its projections of columns replaced; `None`: there is nothing to change.
fn replaced(
    plan: &LogicalPlan,
    f: &mut dyn FnMut(&LogicalPlan) -> Result<Option<LogicalPlan>>,
) -> Result<Option<LogicalPlan>> {
    let Some(input) = passed(plan) else { return f(plan) };
    match replaced(input, f)? {
        Some(input) => plan.with_new_exprs(plan.expressions(), vec![input]).map(Some),
        None => Ok(None),
    }
}

/// The input of a projection that drops columns and changes none.
pub(crate) fn passed(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(projection)
            if projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_))) =>
        {
            Some(&projection.input)
        }
        _ => None,
    }
}

fn ai_node(plan: &LogicalPlan) -> Option<&AiNode> {
    match plan {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
        _ => None,
    }
}

fn ai_filter(plan: &LogicalPlan) -> Option<&AiNode> {
    ai_node(plan).filter(|node| node.kind == AiKind::Filter)
}

fn extension(node: AiNode) -> Result<LogicalPlan> {
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}
