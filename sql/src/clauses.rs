//! Clauses that the planner reads over without a word. A statement that has one would do something else than it
//! says, and more: it is refused.

use std::ops::ControlFlow;

use datafusion::common::{Result, plan_err};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, DuplicateTreatment, Expr, FunctionArguments, TableFactor, Visit as _, Visitor,
};

use crate::function::Function;

/// Refuses a statement with a clause that would have no effect.
pub(crate) fn check(statement: &Statement) -> Result<()> {
    let statement = match statement {
        Statement::Statement(statement) => statement,
        Statement::Explain(explain) => return check(&explain.statement),
        _ => return Ok(()),
    };
    match statement.visit(&mut IgnoredClauses) {
        ControlFlow::Break(reason) => plan_err!("{reason}"),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct IgnoredClauses;

impl Visitor for IgnoredClauses {
    type Break = String;

    fn pre_visit_statement(&mut self, statement: &ast::Statement) -> ControlFlow<String> {
        let ast::Statement::Delete(delete) = statement else { return ControlFlow::Continue(()) };
        let clause = match delete {
            ast::Delete { limit: Some(_), .. } => "LIMIT",
            ast::Delete { returning: Some(_), .. } => "RETURNING",
            ast::Delete { using: Some(_), .. } => "USING",
            ast::Delete { order_by, .. } if !order_by.is_empty() => "ORDER BY",
            _ => return ControlFlow::Continue(()),
        };
        ControlFlow::Break(format!("DELETE .. {clause} is not supported"))
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<String> {
        match table {
            TableFactor::Table { sample: Some(_), name, .. } => {
                ControlFlow::Break(format!("{name}: TABLESAMPLE is not supported"))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let name = call.name.to_string().to_ascii_lowercase();
        if !name.starts_with("ai_") {
            return ControlFlow::Continue(());
        }
        let is_distinct = match &call.args {
            FunctionArguments::List(list) => list.duplicate_treatment == Some(DuplicateTreatment::Distinct),
            _ => false,
        };
        let is_aggregate = Function::aggregates().any(|function| function.name == name);
        let clause = match call {
            _ if is_distinct && !is_aggregate => "DISTINCT",
            ast::Function { filter: Some(_), .. } if !is_aggregate => "FILTER",
            ast::Function { over: Some(_), .. } => "OVER",
            _ => return ControlFlow::Continue(()),
        };
        ControlFlow::Break(format!("{name}: {clause} has no meaning for it"))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::check;

    #[test]
    fn what_the_planner_would_read_over_is_refused() {
        let checked = |text: &str| {
            let statement = DFParser::parse_sql(text).expect("it can be read").pop_front().expect("one");
            check(&statement).map_err(|error| error.strip_backtrace())
        };
        for (text, expected) in [
            ("DELETE FROM t WHERE a < 3 LIMIT 1", "LIMIT"),
            ("DELETE FROM t RETURNING a", "RETURNING"),
            ("DELETE FROM t USING u WHERE t.a = u.a", "USING"),
            ("SELECT * FROM t TABLESAMPLE SYSTEM (1)", "TABLESAMPLE"),
            ("SELECT * FROM (SELECT ai_if(a, 'q') OVER () FROM t) u", "OVER"),
            ("SELECT AI_IF(DISTINCT a, 'q') FROM t", "DISTINCT"),
            ("EXPLAIN SELECT ai_if(a, 'q') FILTER (WHERE false) FROM t", "FILTER"),
        ] {
            let error = checked(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        for text in [
            "DELETE FROM t WHERE ai_if(a, 'q')",
            "SELECT count(DISTINCT a), sum(a) FILTER (WHERE a > 1), sum(a) OVER () FROM t",
            "SELECT ai_agg(DISTINCT a, 'q') FROM t",
        ] {
            assert_eq!(checked(text), Ok(()), "{text}");
        }
    }
}
