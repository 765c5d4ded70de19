//! Pruning: calls whose answers nobody reads are not made.
//!
//! DataFusion drops columns that no expression above reads; a call's answer is one of them, but the operator
//! would make the call all the same.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::node::{AiKind, AiNode};

/// The optimizer's rule; it sees the whole plan, for answers have names of their own in it.
#[derive(Debug)]
pub struct PruneCalls;

impl OptimizerRule for PruneCalls {
    fn name(&self) -> &str {
        "prune_ai_calls"
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut read: HashSet<String> =
            plan.schema().fields().iter().map(|field| field.name().clone()).collect();
        plan.apply_with_subqueries(|node| {
            for expr in node.expressions() {
                read.extend(expr.column_refs().into_iter().map(|column| column.name.clone()));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        plan.transform_up_with_subqueries(|node| {
            let Some(map) = ai_map(&node) else {
                return if node.inputs().is_empty() {
                    Ok(Transformed::no(node))
                } else {
                    node.recompute_schema().map(Transformed::no)
                };
            };
            let program = &map.program;
            let needed = program.needed(|name| read.contains(name));
            if needed.len() == program.calls.len() {
                return Ok(Transformed::no(node));
            }
            if needed.is_empty() {
                return Ok(Transformed::yes(Arc::unwrap_or_clone(Arc::clone(&map.input))));
            }
            let (slots, program) = program.keep(&needed, &map.slots)?;
            let node = AiNode::map(Arc::clone(&map.input), slots, Arc::new(program))?;
            Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(node) })))
        })
    }
}

fn ai_map(plan: &LogicalPlan) -> Option<&AiNode> {
    match plan {
        LogicalPlan::Extension(extension) => {
            extension.node.as_any().downcast_ref().filter(|node: &&AiNode| node.kind == AiKind::Map)
        }
        _ => None,
    }
}
