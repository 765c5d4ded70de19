//! Names as people write them: an unquoted `reviewId` finds the column `reviewId`.
//!
//! SQL folds unquoted names to lower case, but files and other databases have columns with capitals, and
//! their users do not quote. A name that no column has once folded, and exactly one has in other capitals, is
//! that column's.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::common::Result;
use datafusion::execution::context::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, VisitMut, VisitorMut};

/// Quotes the names of a statement that mean columns with capitals.
pub(crate) async fn find(context: &SessionContext, statement: &mut Statement) -> Result<()> {
    let asked = context.state().resolve_table_references(statement)?;
    let mut exact: BTreeMap<String, Option<String>> = BTreeMap::new();
    for table in asked {
        // A name of the statement's own, or a table that is not there: planning says so.
        let Ok(table) = context.table_provider(table).await else { continue };
        for field in table.schema().fields() {
            let folded = field.name().to_lowercase();
            exact
                .entry(folded)
                .and_modify(|known| {
                    if known.as_ref() != Some(field.name()) {
                        *known = None;
                    }
                })
                .or_insert_with(|| Some(field.name().clone()));
        }
    }
    exact.retain(|folded, name| name.as_ref().is_some_and(|name| name != folded));
    if !exact.is_empty() {
        quote(statement, &exact);
    }
    Ok(())
}

fn quote(statement: &mut Statement, exact: &BTreeMap<String, Option<String>>) {
    match statement {
        Statement::Statement(statement) => {
            let _ = statement.visit(&mut Quote(exact));
        }
        Statement::Explain(explain) => quote(&mut explain.statement, exact),
        _ => {}
    }
}

struct Quote<'a>(&'a BTreeMap<String, Option<String>>);

impl Quote<'_> {
    fn name(&self, name: &mut Ident) {
        if name.quote_style.is_none()
            && let Some(Some(exact)) = self.0.get(&name.value.to_lowercase())
        {
            *name = Ident::with_quote('"', exact);
        }
    }
}

impl VisitorMut for Quote<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => self.name(name),
            Expr::CompoundIdentifier(names) => {
                if let Some(name) = names.last_mut() {
                    self.name(name);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
