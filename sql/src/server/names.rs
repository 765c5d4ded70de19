//! Names of a query's columns as Postgres gives them, where the query gives none: `count`, not `count(*)`.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr};

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
        SelectItem::UnnamedExpr(expr) => Some(expression(expr).unwrap_or_else(|| UNNAMED.to_owned())),
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    }
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
    let name = match name {
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
    }
}
