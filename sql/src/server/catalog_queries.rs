//! Queries about Postgres' catalogue, in forms that DataFusion can plan.
//!
//! Tables here have no defaults, sequences, collations, indexes or options of storage. What clients ask of
//! those in forms that DataFusion lacks is NULL, as it would be in Postgres for tables like these.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query,
    SelectItem, SetExpr, Statement, TableFactor, Value, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// Columns of `pg_class` that the catalogue lacks.
const MISSING: [&str; 2] = ["reloptions", "relacl"];
/// Columns of `pg_index` and `pg_constraint` that are vectors in Postgres, and texts in the catalogue.
const VECTORS: [&str; 5] = ["conkey", "confkey", "indclass", "indkey", "indoption"];

/// Rewrites a query about the catalogue.
pub(super) fn rewritten(mut statement: Statement) -> Statement {
    let _ = VisitMut::visit(&mut statement, &mut Rewriter);
    statement
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        selects(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Subquery(query) = expr
            && is_correlated(query)
        {
            take_first(query);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::CompoundIdentifier(names) if is_missing(names) => *expr = null(),
            Expr::Function(function) if is_of_vector(function, "unnest") => *expr = integer(null()),
            Expr::Function(function) if is_of_vector(function, "generate_subscripts") => {
                *expr = integer(null());
            }
            // A field of what `_pg_expandarray` gives: a column of an index's key.
            Expr::CompoundFieldAccess { access_chain, .. }
                if matches!(access_chain.as_slice(), [AccessExpr::Dot(_)]) =>
            {
                *expr = integer(null());
            }
            Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
                escape_with_backslash(pattern, escape_char);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn selects(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => select.projection.iter_mut().for_each(item),
        SetExpr::SetOperation { left, right, .. } => {
            selects(left);
            selects(right);
        }
        // Queries in parentheses are visited themselves.
        _ => {}
    }
}

/// Keeps the name of a column that becomes NULL, and empties subqueries that DataFusion can't plan.
fn item(item: &mut SelectItem) {
    if let SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) = item
        && is_missing(names)
        && let Some(alias) = names.last().cloned()
    {
        *item = SelectItem::ExprWithAlias { expr: null(), alias };
        return;
    }
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { return };
    let _ = VisitMut::visit(expr, &mut Subqueries);
}

/// Makes correlated subqueries that give a value NULL: DataFusion has them only with an aggregate.
struct Subqueries;

impl VisitorMut for Subqueries {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Subquery(query) = expr
            && is_correlated(query)
        {
            *expr = null();
        }
        ControlFlow::Continue(())
    }
}

/// Gives a subquery of a condition an aggregate, which DataFusion demands; it has one row at most.
fn take_first(query: &mut Query) {
    let is_limited = query.limit_clause.is_some() || query.fetch.is_some();
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if let [SelectItem::UnnamedExpr(expr)] = select.projection.as_mut_slice()
        && !is_limited
        && let Some(first) = parsed(&format!("first_value({expr})"))
    {
        *expr = first;
    }
}

fn parsed(text: &str) -> Option<Expr> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(text).ok()?.parse_expr().ok()
}

/// Whether a query without an aggregate names tables that are not its own.
fn is_correlated(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let mut own = HashSet::new();
    for table in &select.from {
        own.extend(table_name(&table.relation));
        own.extend(table.joins.iter().filter_map(|join| table_name(&join.relation)));
    }
    let mut names = Names { own: &own, is_foreign: false, is_aggregate: false };
    let _ = Visit::visit(query, &mut names);
    names.is_foreign && !names.is_aggregate
}

fn table_name(table: &TableFactor) -> Option<String> {
    match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. } => Some(alias.name.value.to_lowercase()),
        TableFactor::Table { name, .. } => {
            name.0.last().and_then(|part| part.as_ident()).map(|name| name.value.to_lowercase())
        }
        _ => None,
    }
}

struct Names<'a> {
    own: &'a HashSet<String>,
    is_foreign: bool,
    is_aggregate: bool,
}

impl Visitor for Names<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        const AGGREGATES: [&str; 8] =
            ["array_agg", "bool_and", "bool_or", "count", "max", "min", "string_agg", "sum"];
        match expr {
            Expr::CompoundIdentifier(names) => {
                let table = names.iter().rev().nth(1).map(|name| name.value.to_lowercase());
                self.is_foreign |= table.is_some_and(|table| !self.own.contains(&table));
            }
            Expr::Function(function) => self.is_aggregate |= AGGREGATES.contains(&name(function).as_str()),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn is_missing(names: &[Ident]) -> bool {
    names.len() > 1 && names.last().is_some_and(|name| MISSING.contains(&name.value.as_str()))
}

/// Whether a function is asked of a column that Postgres has a vector in.
fn is_of_vector(function: &Function, wanted: &str) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(names)))) =
        list.args.first()
    else {
        return false;
    };
    name(function) == wanted && names.last().is_some_and(|name| VECTORS.contains(&name.value.as_str()))
}

fn name(function: &Function) -> String {
    let part = function.name.0.last().and_then(|part| part.as_ident());
    part.map(|name| name.value.to_lowercase()).unwrap_or_default()
}

/// `LIKE 'pg/_%' ESCAPE '/'` in the one escape character that DataFusion has.
fn escape_with_backslash(pattern: &mut Box<Expr>, escape: &mut Option<ValueWithSpan>) {
    let Some(ValueWithSpan { value: Value::SingleQuotedString(from), .. }) = escape else { return };
    if from == "\\" || from == "'" || from.chars().count() != 1 {
        return;
    }
    let Some(text) = leading_text(pattern) else {
        // A pattern of a parameter: its escape character is changed when it is there.
        if let Some(replaced) = parsed(&format!("replace(CAST({pattern} AS TEXT), '{from}', '\\')")) {
            **pattern = replaced;
            *escape = None;
        }
        return;
    };
    let (mut escaped, mut chars) = (String::new(), text.chars());
    while let Some(char) = chars.next() {
        match char {
            '\\' => escaped.push_str("\\\\"),
            char if from.starts_with(char) => match chars.next() {
                Some(wild @ ('%' | '_')) => escaped.extend(['\\', wild]),
                Some(other) => escaped.push(other),
                None => {}
            },
            char => escaped.push(char),
        }
    }
    *text = escaped;
    *escape = None;
}

/// The text that a pattern begins with, where only a text of wildcards is joined to it.
fn leading_text(pattern: &mut Expr) -> Option<&mut String> {
    match pattern {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        Expr::BinaryOp { left, op: ast::BinaryOperator::StringConcat, right } => {
            let wild = matches!(right.as_ref(), Expr::Value(value)
                if matches!(&value.value, Value::SingleQuotedString(text) if text == "%"));
            if wild { leading_text(left) } else { None }
        }
        Expr::Nested(inner) => leading_text(inner),
        _ => None,
    }
}

fn null() -> Expr {
    Expr::Value(Value::Null.with_empty_span())
}

fn integer(expr: Expr) -> Expr {
    Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(expr),
        data_type: ast::DataType::Int(None),
        array: false,
        format: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        rewritten(Parser::parse_sql(&PostgreSqlDialect {}, text).unwrap().remove(0)).to_string()
    }

    #[test]
    fn correlated_subqueries_in_a_projection_become_null() {
        assert_eq!(
            shown("SELECT CASE WHEN a.x THEN (SELECT r.y FROM pg_range AS r WHERE r.z = a.oid) END FROM a"),
            "SELECT CASE WHEN a.x THEN NULL END FROM a"
        );
        for kept in [
            "SELECT (SELECT count(*) FROM pg_range AS r WHERE r.z = a.oid) FROM a",
            "SELECT (SELECT r.y FROM pg_catalog.pg_range AS r WHERE r.z = 1 LIMIT 1) FROM a",
        ] {
            assert_eq!(shown(kept), kept);
        }
    }

    #[test]
    fn correlated_subqueries_in_a_condition_give_their_first_row() {
        assert_eq!(
            shown("SELECT 1 FROM t WHERE t.a = 0 OR (SELECT c.b = 'c' FROM c WHERE c.oid = t.a)"),
            "SELECT 1 FROM t WHERE t.a = 0 OR (SELECT first_value(c.b = 'c') FROM c WHERE c.oid = t.a)"
        );
    }

    #[test]
    fn columns_that_are_missing_are_null_under_their_names() {
        assert_eq!(
            shown("SELECT c.reloptions FROM pg_class AS c WHERE c.relacl IS NULL"),
            "SELECT NULL AS reloptions FROM pg_class AS c WHERE NULL IS NULL"
        );
        assert_eq!(shown("SELECT unnest(i.indkey) AS n FROM i"), "SELECT CAST(NULL AS INT) AS n FROM i");
    }

    #[test]
    fn other_escape_characters_become_backslashes() {
        assert_eq!(
            shown("SELECT n.a FROM n WHERE n.a NOT LIKE 'pg/_//' || '%' ESCAPE '/'"),
            "SELECT n.a FROM n WHERE n.a NOT LIKE 'pg\\_/' || '%'"
        );
        assert_eq!(
            shown("SELECT n.a FROM n WHERE n.a LIKE $1 || '%' ESCAPE '/'"),
            "SELECT n.a FROM n WHERE n.a LIKE replace(CAST($1 || '%' AS TEXT), '/', '\\')"
        );
    }
}
