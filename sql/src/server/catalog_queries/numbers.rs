//! Numbers of types, tables and functions, which Postgres shows by names.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, Expr, Value, ValueWithSpan, VisitorMut};

use super::parsed;

/// Gives numbers of objects the names that Postgres shows them by, and functions the names that the catalogue
/// has in the place of their numbers.
pub(super) struct NamesOfNumbers;

impl VisitorMut for NamesOfNumbers {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let is_text = |data_type: &ast::DataType| {
            let name = data_type.to_string().to_ascii_lowercase();
            ["text", "varchar", "name"].contains(&name.trim_start_matches("pg_catalog."))
        };
        let named = match expr {
            Expr::Cast { expr: number, data_type, .. } if is_text(data_type) => match number.as_ref() {
                Expr::Cast { expr: number, data_type, .. } => name_of(number, data_type),
                _ => None,
            },
            Expr::Cast { expr: vector, data_type, .. }
                if is_vector(vector) && alias(data_type).ends_with("[]") =>
            {
                parsed(&format!("CAST(string_to_array({vector}, ' ') AS {data_type})"))
            }
            Expr::Cast { expr: text, data_type, .. } if alias(data_type) == "regproc" => {
                match text.as_ref() {
                    Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(name), .. }) => {
                        let name = name.trim_start_matches("pg_catalog.").to_owned();
                        Some(Expr::Value(Value::SingleQuotedString(name).with_empty_span()))
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        if let Some(named) = named {
            *expr = named;
        }
        ControlFlow::Continue(())
    }
}

/// Whether a column is a list of numbers that the catalogue has as a text: `23 25`.
fn is_vector(expr: &Expr) -> bool {
    let name = match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    };
    name.is_some_and(|name| name.value.eq_ignore_ascii_case("proargtypes"))
}

fn alias(data_type: &ast::DataType) -> String {
    let name = data_type.to_string().to_ascii_lowercase();
    name.trim_start_matches("pg_catalog.").to_owned()
}

/// The name of an object that a column has the number of.
fn name_of(number: &Expr, data_type: &ast::DataType) -> Option<Expr> {
    if !matches!(number, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
        return None;
    }
    parsed(&match alias(data_type).as_str() {
        "regtype" => format!("format_type({number}, CAST(NULL AS INT))"),
        "regclass" => {
            format!("(SELECT first_value(__c.relname) FROM pg_catalog.pg_class __c WHERE __c.oid = {number})")
        }
        "regnamespace" => {
            format!(
                "(SELECT first_value(__n.nspname) FROM pg_catalog.pg_namespace __n WHERE __n.oid = {number})"
            )
        }
        "regproc" => format!("CAST({number} AS TEXT)"),
        "regrole" => "pg_get_userbyid(10)".to_owned(),
        _ => return None,
    })
}
