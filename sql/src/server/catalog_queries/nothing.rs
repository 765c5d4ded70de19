//! Queries that read tables of the catalogue without rows: they have none either.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, Join, JoinOperator, Query, Select, SelectItem, SetExpr, TableFactor, TableWithJoins,
    Value, Visit, Visitor, VisitorMut,
};

use super::{catalog, is_aggregate, name, null, parsed, system_table};
use crate::server::names;

/// Makes queries without rows of those that read empty tables.
pub(super) struct Nothing;

impl VisitorMut for Nothing {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Subquery(query) = expr
            && let Some(value) = value_of_nothing(query)
        {
            *expr = value;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        nothing(&mut query.body);
        // What has no rows has nothing to order, and its columns may be gone.
        if let SetExpr::Select(select) = query.body.as_ref()
            && select.from.is_empty()
            && is_false(select.selection.as_ref())
        {
            query.order_by = None;
        }
        ControlFlow::Continue(())
    }
}

/// The value of a subquery that reads an empty table: NULL, but for counts and what is computed of aggregates.
fn value_of_nothing(query: &Query) -> Option<Expr> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    if !reads_empty(select) {
        return None;
    }
    match expr {
        Expr::Function(function) if name(function) == "count" => None,
        Expr::Function(function) if name(function) == "array_agg" => parsed("CAST(NULL AS TEXT[])"),
        expr if is_aggregate(expr) => Some(null()),
        _ => is_without_rows(select).then(null),
    }
}

fn nothing(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) if is_without_rows(select) => empty(select),
        SetExpr::SetOperation { left, right, .. } => {
            nothing(left);
            nothing(right);
        }
        // Queries in parentheses are visited themselves.
        _ => {}
    }
}

pub(super) fn is_false(condition: Option<&Expr>) -> bool {
    matches!(condition, Some(Expr::Value(value)) if value.value == Value::Boolean(false))
}

/// Whether a query has no rows because a table that it reads has none.
fn is_without_rows(select: &Select) -> bool {
    let is_grouped = match &select.group_by {
        ast::GroupByExpr::Expressions(exprs, _) => !exprs.is_empty(),
        ast::GroupByExpr::All(_) => true,
    };
    let mut aggregates = Aggregates { depth: 0, is_there: false };
    for item in &select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            // The columns of a wildcard are not known here.
            return false;
        };
        let _ = Visit::visit(expr, &mut aggregates);
    }
    // An aggregate has a row of nothing too.
    !is_grouped && !aggregates.is_there && reads_empty(select)
}

/// Whether an expression has an aggregate of its own query, not of a subquery's.
struct Aggregates {
    depth: usize,
    is_there: bool,
}

impl Visitor for Aggregates {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.is_there |= self.depth == 0 && is_aggregate(expr);
        ControlFlow::Continue(())
    }
}

/// Whether a table that all rows of a query need is empty.
pub(super) fn reads_empty(select: &Select) -> bool {
    select.from.iter().any(needs_empty)
}

/// Whether joined tables have no rows because one that all rows need is empty.
fn needs_empty(joined: &TableWithJoins) -> bool {
    use JoinOperator::{CrossJoin, FullOuter, Inner, Right, RightOuter};
    let keeps_right = |join: &Join| matches!(join.join_operator, Right(_) | RightOuter(_) | FullOuter(_));
    let is_inner_empty = |join: &Join| {
        matches!(join.join_operator, JoinOperator::Join(_) | Inner(_) | CrossJoin(_))
            && is_empty(&join.relation)
    };
    !joined.joins.iter().any(keeps_right)
        && (is_empty(&joined.relation) || joined.joins.iter().any(is_inner_empty))
}

fn is_empty(table: &TableFactor) -> bool {
    match table {
        TableFactor::Table { name, args: None, .. } => {
            system_table(name).is_some_and(|(schema, table)| catalog::is_empty(schema.as_deref(), &table))
        }
        TableFactor::Derived { subquery, .. } => match subquery.body.as_ref() {
            SetExpr::Select(select) => is_without_rows(select),
            _ => false,
        },
        // `unnest(c.reloptions)`, of a column that is always NULL.
        TableFactor::Table { name, args: Some(_), .. } => {
            const NULLS: [&str; 5] = ["attacl", "attoptions", "nspacl", "relacl", "reloptions"];
            let text = table.to_string().to_lowercase();
            name.to_string().to_lowercase().ends_with("unnest")
                && NULLS.iter().any(|column| text.contains(&format!(".{column})")))
        }
        TableFactor::NestedJoin { table_with_joins, .. } => needs_empty(table_with_joins),
        _ => false,
    }
}

/// Columns of the same names, and no rows.
fn empty(select: &mut Select) {
    let mut seen = HashSet::new();
    for (place, item) in select.projection.iter_mut().enumerate() {
        let alias = match item {
            SelectItem::UnnamedExpr(expr) => Ident::with_quote('"', names::of_expression(expr)),
            SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
            _ => continue,
        };
        let is_new = seen.insert(alias.value.clone());
        let alias = if is_new { alias } else { names::again(&alias.value, place) };
        *item = SelectItem::ExprWithAlias { expr: null(), alias };
    }
    select.from.clear();
    select.distinct = None;
    select.having = None;
    select.selection = Some(Expr::Value(Value::Boolean(false).with_empty_span()));
}
