//! Queries about Postgres' catalogue, in forms that DataFusion can plan.
//!
//! Only statements that read the catalogue come here, and in them only what reads it is changed: a tenant's
//! own query means what it says.
//!
//! - What reads a table that is empty ([`catalog::is_empty`]) has no rows, whatever else it asks for in forms
//!   that DataFusion lacks.
//! - A correlated subquery that gives a value becomes an aggregate, as DataFusion demands; one that reads an
//!   empty table, or collations (no column has one), is NULL.

mod nothing;
mod numbers;

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, Query, SelectItem, SetExpr, Statement, TableFactor, Value, ValueWithSpan, Visit,
    VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion_pg_catalog::sql::rules::{
    CurrentUserVariableToSessionUserFunctionCall, FixArrayLiteral, FixVersionColumnName,
    ResolveUnqualifiedIdentifier, RewriteArrayAnyAllOperation, RewritePgCatalogOperator,
    RewriteRegCastToSubquery, SqlStatementRewriteRule, StripCallableQualifier, StripCollate,
};

use super::catalog;
use nothing::{Nothing, is_false, reads_empty};
use numbers::NamesOfNumbers;

/// Columns of `pg_index` and `pg_constraint` that are vectors in Postgres, and texts in the catalogue.
const VECTORS: [&str; 5] = ["conkey", "confkey", "indclass", "indkey", "indoption"];

/// Whether a statement reads the catalogue, or asks for the numbers of its objects.
pub(super) fn is_about_catalog(statement: &Statement) -> bool {
    let mut reads = Reads { is_about_catalog: false };
    let _ = Visit::visit(statement, &mut reads);
    reads.is_about_catalog
}

struct Reads {
    is_about_catalog: bool,
}

impl Visitor for Reads {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        self.is_about_catalog |= system_table(name).is_some();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Cast { data_type, .. } = expr {
            let name = data_type.to_string().to_ascii_lowercase();
            self.is_about_catalog |= name.trim_start_matches("pg_catalog.").starts_with("reg");
        }
        ControlFlow::Continue(())
    }
}

/// The schema, where it is named, and the name of a table of the catalogue; `None` of other tables.
fn system_table(name: &ObjectName) -> Option<(Option<String>, String)> {
    let parts: Vec<String> =
        name.0.iter().filter_map(ObjectNamePart::as_ident).map(|part| part.value.to_lowercase()).collect();
    match parts.as_slice() {
        [table] if catalog::is_table(table) => Some((None, table.clone())),
        [.., schema, table] if ["pg_catalog", "information_schema"].contains(&schema.as_str()) => {
            Some((Some(schema.clone()), table.clone()))
        }
        _ => None,
    }
}

/// What asyncpg asks of types, where it knows them by the number only: a recursive query over domains, rows
/// and arrays, of which only arrays and ranges are there.
const TYPES_OF_ASYNCPG: &str = "
    SELECT t.oid AS oid, n.nspname AS ns, t.typname AS name, t.typtype AS kind, CAST(NULL AS INT) AS basetype,
      CASE WHEN t.typcategory = 'A' THEN t.typelem END AS elemtype, e.typdelim AS elemdelim,
      r.rngsubtype AS range_subtype, CAST(NULL AS TEXT[]) AS attrtypoids, CAST(NULL AS TEXT[]) AS attrnames,
      CAST(0 AS INT) AS depth, CAST(NULL AS TEXT) AS basetype_name, e.typname AS elemtype_name,
      s.typname AS range_subtype_name
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
      LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
      LEFT JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid
      LEFT JOIN pg_catalog.pg_type s ON s.oid = r.rngsubtype
    WHERE t.oid = ANY($1::oid[])";

fn is_types_of_asyncpg(statement: &Statement) -> bool {
    let Statement::Query(query) = statement else { return false };
    let own = query.with.iter().flat_map(|with| &with.cte_tables);
    own.into_iter().any(|own| own.alias.name.value == "typeinfo_tree")
}

/// Rewrites a query about the catalogue.
pub(super) fn rewritten(mut statement: Statement) -> Statement {
    if is_types_of_asyncpg(&statement)
        && let Ok([types]) = Parser::parse_sql(&PostgreSqlDialect {}, TYPES_OF_ASYNCPG).as_deref()
    {
        statement = types.clone();
    }
    let _ = VisitMut::visit(&mut statement, &mut Nothing);
    let _ = VisitMut::visit(&mut statement, &mut NamesOfNumbers);
    let numbers = RewriteRegCastToSubquery::new();
    let rules: [&dyn SqlStatementRewriteRule; 9] = [
        &ResolveUnqualifiedIdentifier,
        &RewriteArrayAnyAllOperation,
        &StripCallableQualifier,
        &FixArrayLiteral,
        &CurrentUserVariableToSessionUserFunctionCall,
        &StripCollate,
        &RewritePgCatalogOperator,
        &numbers,
        &FixVersionColumnName,
    ];
    let mut statement = rules.iter().fold(statement, |statement, rule| rule.rewrite(statement));
    let _ = VisitMut::visit(&mut statement, &mut Rewriter);
    statement
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        if let [ObjectNamePart::Identifier(table)] = name.0.as_slice()
            && catalog::is_table(&table.value.to_lowercase())
        {
            name.0.insert(0, ObjectNamePart::Identifier(Ident::new("pg_catalog")));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Subquery(query) = expr
            && reads_catalog(query)
            && is_correlated(query)
        {
            if is_null(query) {
                *expr = null();
            } else {
                take_first(query);
            }
        }
        if let Expr::InSubquery { expr: schema, subquery, negated: false } = expr
            && is_search_path(subquery)
            && let Some(found) = parsed(&format!("array_has({SEARCH_PATH}, {schema})"))
        {
            *expr = found;
        }
        if let Expr::Function(function) = expr
            && ["col_description", "obj_description"].contains(&name(function).as_str())
        {
            // Nothing has a description; how its number is found does not matter.
            *expr = Expr::Cast {
                kind: ast::CastKind::Cast,
                expr: Box::new(null()),
                data_type: ast::DataType::Text,
                array: false,
                format: None,
            };
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
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
            Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right } => {
                name_function(left, right);
                name_function(right, left);
            }
            Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
                escape_with_backslash(pattern, escape_char);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The schemas of the search path.
const SEARCH_PATH: &str = "string_to_array(replace(replace(current_setting('search_path'), ' ', ''), \
     '\"$user\"', pg_get_userbyid(10)), ',')";

/// Whether a query gives the schemas of the search path, as Grafana asks for them.
fn is_search_path(query: &Query) -> bool {
    let text = query.to_string();
    text.contains("generate_series") && text.contains("string_to_array(current_setting('search_path')")
}

/// `pg_proc.oid = t.typreceive`, where the catalogue has a name in the place of the number.
fn name_function(number: &mut Expr, function: &Expr) {
    const FUNCTIONS: [&str; 6] = ["typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout"];
    let is_of_type = matches!(function, Expr::CompoundIdentifier(names)
        if names.last().is_some_and(|name| FUNCTIONS.contains(&name.value.to_lowercase().as_str())));
    if is_of_type
        && let Expr::CompoundIdentifier(names) = number
        && let Some(last) = names.last_mut()
        && last.value.eq_ignore_ascii_case("oid")
    {
        *last = Ident::new("proname");
    }
}

/// Whether a subquery reads tables of the catalogue, and no others.
fn reads_catalog(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let mut tables = select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)));
    !select.from.is_empty()
        && tables
            .all(|table| matches!(table, TableFactor::Table { name, .. } if system_table(name).is_some()))
}

/// Whether a subquery without an aggregate gives NULL for every row around it.
fn is_null(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let is_of_collations = |table: &TableFactor| {
        matches!(table, TableFactor::Table { name, .. }
            if system_table(name).is_some_and(|(_, table)| table == "pg_collation"))
    };
    is_false(select.selection.as_ref())
        || reads_empty(select)
        || select.from.iter().any(|from| is_of_collations(&from.relation))
}

/// Gives a subquery an aggregate, which DataFusion demands of correlated ones; it has one row at most.
fn take_first(query: &mut Query) {
    let is_limited = query.limit_clause.is_some() || query.fetch.is_some();
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    if let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
        select.projection.as_mut_slice()
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
        match expr {
            Expr::CompoundIdentifier(names) => {
                let table = names.iter().rev().nth(1).map(|name| name.value.to_lowercase());
                self.is_foreign |= table.is_some_and(|table| !self.own.contains(&table));
            }
            Expr::Function(_) => self.is_aggregate |= is_aggregate(expr),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn is_aggregate(expr: &Expr) -> bool {
    const AGGREGATES: [&str; 9] =
        ["array_agg", "bool_and", "bool_or", "count", "first_value", "max", "min", "string_agg", "sum"];
    matches!(expr, Expr::Function(function) if AGGREGATES.contains(&name(function).as_str()))
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
    fn correlated_subqueries_about_what_is_not_there_are_null() {
        assert_eq!(
            shown(
                "SELECT CASE WHEN a.x THEN (SELECT d.y FROM pg_attrdef AS d WHERE d.z = a.oid) END \
                 FROM pg_class AS a"
            ),
            "SELECT CASE WHEN a.x THEN NULL END FROM pg_catalog.pg_class AS a"
        );
        for kept in [
            "SELECT (SELECT count(*) FROM pg_catalog.pg_range AS r WHERE r.z = a.oid) FROM a",
            "SELECT (SELECT r.y FROM pg_catalog.pg_range AS r WHERE r.z = 1 LIMIT 1) FROM a",
            "SELECT (SELECT d.y FROM mine AS d WHERE d.z = a.oid) FROM pg_catalog.pg_class AS a",
        ] {
            assert_eq!(shown(kept), kept);
        }
    }

    #[test]
    fn correlated_subqueries_of_the_catalogue_give_their_first_row() {
        assert_eq!(
            shown(
                "SELECT (SELECT c.a FROM pg_type c WHERE c.oid = t.a) FROM pg_class t \
                 WHERE t.a = 0 OR (SELECT c.b = 'c' FROM pg_class c WHERE c.oid = t.a)"
            ),
            "SELECT (SELECT first_value(c.a) FROM pg_catalog.pg_type c WHERE c.oid = t.a) \
             FROM pg_catalog.pg_class t WHERE t.a = 0 OR (SELECT first_value(c.b = 'c') \
             FROM pg_catalog.pg_class c WHERE c.oid = t.a)"
        );
    }

    #[test]
    fn queries_of_empty_tables_have_their_columns_and_no_rows() {
        assert_eq!(
            shown(
                "SELECT a.attname AS x, unnest(i.indkey), i.indrelid FROM pg_index i \
                 JOIN pg_attribute a ON true ORDER BY 1"
            ),
            "SELECT NULL AS x, NULL AS \"unnest\", NULL AS \"indrelid\" WHERE false"
        );
        assert_eq!(
            shown(
                "SELECT (SELECT string_agg(a.b, ',') FROM unnest(p.c) AS s) FROM pg_policy AS p WHERE p.d = 1"
            ),
            "SELECT NULL AS \"?column?\" WHERE false"
        );
        for kept in [
            "SELECT count(*) FROM pg_catalog.pg_index",
            "SELECT c.oid FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_index AS i ON i.x = c.oid",
            "SELECT * FROM pg_catalog.pg_index",
        ] {
            assert_eq!(shown(kept), kept);
        }
    }

    #[test]
    fn numbers_of_objects_are_shown_by_names() {
        assert_eq!(
            shown("SELECT a.atttypid::regtype::text FROM pg_catalog.pg_attribute AS a"),
            "SELECT format_type(a.atttypid, CAST(NULL AS INT)) FROM pg_catalog.pg_attribute AS a"
        );
        assert_eq!(
            shown("SELECT t.typinput = 'pg_catalog.array_in'::regproc FROM pg_catalog.pg_type AS t"),
            "SELECT t.typinput = 'array_in' FROM pg_catalog.pg_type AS t"
        );
    }

    #[test]
    fn only_what_reads_the_catalogue_is_about_it() {
        let is_about =
            |text: &str| is_about_catalog(&Parser::parse_sql(&PostgreSqlDialect {}, text).unwrap().remove(0));
        assert!(is_about("SELECT 1 FROM pg_class") && is_about("SELECT 'a'::regclass"));
        assert!(is_about("WITH t AS (SELECT 1 FROM information_schema.tables) SELECT * FROM t"));
        assert!(!is_about("SELECT pg_rating FROM pg_films WHERE note = 'information_schema'"));
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
