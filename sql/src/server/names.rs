//! Names of a query's columns as Postgres gives them, where the query gives none: `count`, not `count(*)`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr, VisitMut, VisitorMut};

/// What Postgres calls a column whose expression suggests no name.
const UNNAMED: &str = "?column?";

/// The names of a query's columns; `None` where a wildcard hides them, or the statement is no query.
pub(super) fn of(statement: &Statement) -> Option<Vec<String>> {
    projection(statement)?.iter().map(item).collect()
}

/// The columns that a query writes out.
pub(super) fn count(statement: &Statement) -> usize {
    projection(statement).map_or(0, <[SelectItem]>::len)
}

fn projection(statement: &Statement) -> Option<&[SelectItem]> {
    let Statement::Statement(statement) = statement else { return None };
    let ast::Statement::Query(query) = statement.as_ref() else { return None };
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => return Some(&select.projection),
            // The first query of a union names its columns.
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(query) => body = query.body.as_ref(),
            _ => return None,
        }
    }
}

fn item(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(of_expression(expr)),
        SelectItem::ExprWithAlias { alias, .. } => Some(shown(&folded(alias)).to_owned()),
        _ => None,
    }
}

/// The name of a column that has no other than its expression.
pub(super) fn of_expression(expr: &Expr) -> String {
    expression(expr).unwrap_or_else(|| UNNAMED.to_owned())
}

/// Stands in names between what Postgres calls a column and a number that makes the name another's than
/// those before: Postgres' columns may have equal names, DataFusion's may not.
const AGAIN: char = '\u{1f}';

/// The name of a column that is not the first of its name.
pub(super) fn again(name: &str, place: usize) -> ast::Ident {
    ast::Ident::with_quote('"', format!("{name}{AGAIN}{place}"))
}

/// A column's name as it is told to clients.
pub(super) fn shown(name: &str) -> &str {
    name.split(AGAIN).next().unwrap_or(name)
}

/// Gives columns of equal names in a query's lists names of their own, which [`shown`] undoes. In a query
/// whose expressions are to be replaced, `all` that are not columns get such names, and keep them.
pub(super) fn part(statement: &mut ast::Statement, all: bool) {
    if matches!(statement, ast::Statement::Query(_)) {
        let _ = VisitMut::visit(statement, &mut Part { all });
    }
}

struct Part {
    all: bool,
}

impl VisitorMut for Part {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        self.body(&mut query.body);
        ControlFlow::Continue(())
    }
}

impl Part {
    fn body(&self, body: &mut SetExpr) {
        match body {
            SetExpr::Select(select) => part_items(&mut select.projection, self.all),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left);
                self.body(right);
            }
            // Queries in parentheses are visited themselves.
            _ => {}
        }
    }
}

fn part_items(items: &mut [SelectItem], all: bool) {
    let is_wild =
        |item: &SelectItem| !matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    let has_wildcard = items.iter().any(is_wild);
    let mut seen: HashSet<String> = HashSet::new();
    for (place, item) in items.iter_mut().enumerate() {
        let (name, expr) = match item {
            SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                let name = of_expression(expr);
                // A wildcard may have the column too.
                (if has_wildcard { None } else { Some(name.clone()) }, (name, expr))
            }
            SelectItem::UnnamedExpr(expr) => ((!all).then(|| uncast(expr)), (of_expression(expr), expr)),
            SelectItem::ExprWithAlias { alias, expr } => {
                let name = folded(alias);
                (Some(name.clone()), (name, expr))
            }
            _ => continue,
        };
        let is_new = name.is_some_and(|name| seen.insert(name));
        if !is_new {
            let (name, expr) = expr;
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: again(&name, place) };
        }
    }
}

/// An expression as DataFusion names it: casts do not count.
fn uncast(expr: &Expr) -> String {
    struct Uncast;

    impl VisitorMut for Uncast {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            while let Expr::Cast { expr: inner, .. } = expr {
                *expr = std::mem::replace(inner.as_mut(), Expr::Identifier(ast::Ident::new("")));
            }
            ControlFlow::Continue(())
        }
    }

    let mut expr = expr.clone();
    let _ = VisitMut::visit(&mut expr, &mut Uncast);
    expr.to_string()
}

fn expression(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(names) => names.last().map(folded),
        Expr::Function(function) => function.name.0.last().and_then(|part| part.as_ident()).map(folded),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => expression(inner),
        Expr::Cast { expr: inner, data_type, .. } => expression(inner).or_else(|| Some(type_name(data_type))),
        Expr::Case { .. } => Some("case".to_owned()),
        Expr::Exists { .. } => Some("exists".to_owned()),
        Expr::Array(_) => Some("array".to_owned()),
        Expr::Extract { .. } => Some("extract".to_owned()),
        Expr::Substring { .. } => Some("substring".to_owned()),
        Expr::Trim { .. } => Some("btrim".to_owned()),
        Expr::Position { .. } => Some("position".to_owned()),
        _ => None,
    }
}

/// A type's name in Postgres' catalogue.
fn type_name(data_type: &ast::DataType) -> String {
    let name = data_type.to_string().to_ascii_lowercase();
    let name = name.split(['(', ' ']).next().unwrap_or_default();
    let name = match name.trim_end_matches("[]") {
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "boolean" => "bool",
        "double" => "float8",
        "real" => "float4",
        "character" => "bpchar",
        "decimal" => "numeric",
        other => other.rsplit('.').next().unwrap_or(other),
    };
    name.to_owned()
}

fn folded(name: &ast::Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    #[test]
    fn columns_are_named_as_postgres_names_them() {
        let names = |text: &str| of(&DFParser::parse_sql(text).unwrap()[0]);
        let expected = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(
            names("SELECT 1, count(*), a.B, c AS \"D\", x::text, 1::bigint, CASE WHEN a THEN 1 END FROM t"),
            expected(&["?column?", "count", "b", "D", "x", "int8", "case"])
        );
        assert_eq!(names("SELECT * FROM t"), None);
        assert_eq!(names("SELECT max(a) FROM t UNION SELECT 2"), expected(&["max"]));
        assert_eq!(names("SELECT '{}'::int[], a::text[] FROM t"), expected(&["int4", "a"]));
    }

    #[test]
    fn columns_of_equal_names_are_told_apart_and_shown_alike() {
        let parted = |text: &str| {
            let mut statement = DFParser::parse_sql(text).unwrap()[0].clone();
            if let Statement::Statement(statement) = &mut statement {
                part(statement, false);
            }
            (statement.to_string().replace(AGAIN, "#"), of(&statement).map(|names| names.join(",")))
        };
        for (text, expected, names) in [
            ("SELECT NULL, NULL", "SELECT NULL, NULL AS \"?column?#1\"", Some("?column?,?column?")),
            ("SELECT NULL, NULL::text", "SELECT NULL, NULL::TEXT AS \"text#1\"", Some("?column?,text")),
            ("SELECT a.id, b.id FROM a, b", "SELECT a.id, b.id AS \"id#1\" FROM a, b", Some("id,id")),
            ("SELECT x AS n, y AS n FROM t", "SELECT x AS n, y AS \"n#1\" FROM t", Some("n,n")),
            (
                "SELECT NULL, NULL UNION SELECT NULL, NULL",
                "SELECT NULL, NULL AS \"?column?#1\" UNION SELECT NULL, NULL AS \"?column?#1\"",
                Some("?column?,?column?"),
            ),
            ("SELECT *, id FROM t", "SELECT *, id AS \"id#1\" FROM t", None),
            (
                "SELECT 1, 2, max(a), max(b) FROM t",
                "SELECT 1, 2, max(a), max(b) FROM t",
                Some("?column?,?column?,max,max"),
            ),
        ] {
            assert_eq!(parted(text), (expected.to_owned(), names.map(str::to_owned)), "{text}");
        }
    }
}
