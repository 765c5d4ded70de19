//! Statements as this server carries them out: its own (transactions, settings, cursors, COPY), and all
//! others, which are DataFusion's.

use std::ops::ControlFlow;

use datafusion::common::TableReference;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, AlterTableOperation, CloseCursor, ContextModifier, DiscardObject, Expr, FunctionArguments,
    RenameTableNameKind, SelectItem, Set, SetExpr, TransactionAccessMode, TransactionMode, Value, VisitMut,
    VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion_pg_catalog::sql::rules::{
    CurrentUserVariableToSessionUserFunctionCall, FixVersionColumnName, RewriteArrayAnyAllOperation,
    SqlStatementRewriteRule, StripCallableQualifier, StripCollate,
};

use super::catalog_queries;
use super::copy::{self, CopyFormat};
use super::cursor::{self, Step};
use super::error::{SqlError, code};
use super::names;
use super::settings;
use super::split::{Piece, split};
use crate::Session;

/// What a statement is.
#[derive(Clone, Debug)]
pub(super) enum SessionCommand {
    /// DataFusion plans and runs it.
    Query(Box<Statement>),
    Copy {
        query: Box<Statement>,
        format: CopyFormat,
    },
    Begin(Modes),
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    SetTransaction {
        modes: Modes,
        is_session: bool,
    },
    /// Without a value: back to the one at first.
    Set {
        name: String,
        value: Option<String>,
        is_local: bool,
    },
    ResetAll,
    Show(String),
    ShowAll,
    DiscardAll,
    Declare {
        name: String,
        is_held: bool,
        is_binary: bool,
        is_scroll: bool,
        query: Box<Statement>,
        text: String,
    },
    Fetch {
        name: String,
        step: Step,
    },
    Move {
        name: String,
        step: Step,
    },
    /// `ALTER TABLE .. RENAME TO`.
    Rename {
        table: TableReference,
        to: String,
        may_miss: bool,
    },
    /// One cursor, or all.
    CloseCursor(Option<String>),
    /// One prepared statement, or all.
    Deallocate(Option<String>),
    /// Nothing is to do, and clients do not mind.
    Nothing(&'static str),
}

/// What a transaction is to be like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) is_read_only: Option<bool>,
    pub(super) isolation: Option<String>,
}

impl SessionCommand {
    /// Whether it may run in a transaction that has failed.
    pub(super) fn ends_failure(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::RollbackTo(_))
    }
}

/// Reads one statement.
pub(super) fn parse(session: &Session, piece: &Piece<'_>) -> Result<SessionCommand, SqlError> {
    let words: Vec<&str> = piece.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["COPY", ..] => {
            let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, piece.text)
                .map_err(|error| copy_error(piece.text, &error.to_string()))?;
            let statement = statements.pop().ok_or_else(|| SqlError::new(code::SYNTAX, "syntax error"))?;
            let (query, format) = copy::plan(statement)?;
            Ok(SessionCommand::Copy { query: Box::new(query_of(session, &query)?), format })
        }
        ["FETCH", ..] => {
            let (step, name) = cursor::parse(piece.text)?;
            Ok(SessionCommand::Fetch { name, step })
        }
        ["MOVE", ..] => {
            let (step, name) = cursor::parse(piece.text)?;
            Ok(SessionCommand::Move { name, step })
        }
        // The parser knows no other change of a view than of its query.
        ["ALTER", "VIEW", ..] => {
            let name = piece.text.to_ascii_uppercase().find("VIEW").map_or(0, |place| place + "VIEW".len());
            let text = format!("ALTER TABLE {}", &piece.text[name..]);
            command(query_of(session, &text)?, piece.text, session)
        }
        ["ABORT", ..] => Ok(SessionCommand::Rollback),
        ["RESET", "ALL"] => Ok(SessionCommand::ResetAll),
        ["RESET", "SESSION", "AUTHORIZATION"] => Ok(SessionCommand::Nothing("RESET")),
        ["RESET", "TIME", "ZONE"] => {
            Ok(SessionCommand::Set { name: "timezone".to_owned(), value: None, is_local: false })
        }
        ["RESET", _] => {
            let name = piece.text.split_whitespace().nth(1).unwrap_or_default().to_ascii_lowercase();
            if settings::is_of_postgres(&name) {
                return Ok(SessionCommand::Set { name, value: None, is_local: false });
            }
            statement(session, piece).map(|statement| SessionCommand::Query(Box::new(statement)))
        }
        ["BEGIN" | "START" | "SET", ..] => match without_deferrable(piece.text) {
            Some(text) if text.is_empty() => Ok(SessionCommand::Nothing("SET")),
            Some(text) => command(query_of(session, &text)?, piece.text, session),
            None => command(statement(session, piece)?, piece.text, session),
        },
        _ => command(statement(session, piece)?, piece.text, session),
    }
}

/// A statement about transactions without `[NOT] DEFERRABLE`, which the parser lacks and nothing here depends
/// on: empty where nothing else is asked, `None` for all other statements.
fn without_deferrable(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is = |word: &&str, wanted: &str| word.trim_matches(',').eq_ignore_ascii_case(wanted);
    let is_of_transaction = words.first().is_some_and(|word| is(word, "begin"))
        || words.iter().any(|word| is(word, "transaction"));
    let place = words.iter().position(|word| is(word, "deferrable"))?;
    if !is_of_transaction || text.contains(['\'', '"', '=']) {
        return None;
    }
    let from = if is(words.get(place.checked_sub(1)?)?, "not") { place - 1 } else { place };
    if from == 0 {
        return None;
    }
    let mut rest = words[..from].join(" ");
    rest.truncate(rest.trim_end_matches([' ', ',']).len());
    let behind = words[place + 1..].join(" ");
    let behind = behind.trim_start_matches([' ', ',']);
    let is_bare = behind.is_empty() && words[from - 1].eq_ignore_ascii_case("transaction");
    if is_bare && is(&words[0], "set") {
        return Some(String::new());
    }
    Some(format!("{rest} {behind}"))
}

/// Reads the one query of a text.
fn query_of(session: &Session, text: &str) -> Result<Statement, SqlError> {
    let pieces = split(text)?;
    let [piece] = pieces.as_slice() else { return Err(SqlError::new(code::SYNTAX, "syntax error")) };
    statement(session, piece)
}

/// `COPY` to and from files that DataFusion would understand, and we do not.
fn copy_error(text: &str, message: &str) -> SqlError {
    let is_to_file = text.to_ascii_uppercase().contains(" TO '");
    if is_to_file {
        copy::to_files()
    } else {
        SqlError::new(code::SYNTAX, format!("syntax error: {message}"))
    }
}

fn statement(session: &Session, piece: &Piece<'_>) -> Result<Statement, SqlError> {
    let statements = session.parse(piece.text)?;
    let Ok([statement]) = <[_; 1]>::try_from(statements) else {
        return Err(SqlError::new(code::SYNTAX, "syntax error: expected one statement"));
    };
    Ok(rewritten(statement))
}

/// A statement in words that DataFusion knows and Postgres has others for.
fn rewritten(statement: Statement) -> Statement {
    match statement {
        Statement::Statement(mut statement) if catalog_queries::is_about_catalog(&statement) => {
            names::part(&mut statement, true);
            let statement = catalog_queries::rewritten(values_of_queries(*statement));
            Statement::Statement(Box::new(statement))
        }
        Statement::Statement(mut statement) => {
            names::part(&mut statement, false);
            let rules: [&dyn SqlStatementRewriteRule; 5] = [
                &RewriteArrayAnyAllOperation,
                &StripCallableQualifier,
                &CurrentUserVariableToSessionUserFunctionCall,
                &StripCollate,
                &FixVersionColumnName,
            ];
            let statement = values_of_queries(*statement);
            let statement = rules.iter().fold(statement, |statement, rule| rule.rewrite(statement));
            Statement::Statement(Box::new(statement))
        }
        Statement::Explain(mut explain) => {
            explain.statement = Box::new(rewritten(*explain.statement));
            Statement::Explain(explain)
        }
        other => other,
    }
}

/// `ARRAY(SELECT ..)` and `SELECT EXISTS (..)` as the aggregates that they are, and `TRUNCATE` without words
/// that change nothing here.
fn values_of_queries(mut statement: ast::Statement) -> ast::Statement {
    if let ast::Statement::Truncate(truncate) = &mut statement {
        (truncate.cascade, truncate.identity) = (None, None);
    }
    let _ = VisitMut::visit(&mut statement, &mut SubqueryValues);
    statement
}

/// `SELECT EXISTS (..)` as a count, which DataFusion has in the place of a value too.
fn exists_as_value(select: &mut ast::Select) {
    for item in &mut select.projection {
        let (expr, alias) = match item {
            SelectItem::UnnamedExpr(expr @ Expr::Exists { .. }) => (expr, ast::Ident::new("exists")),
            SelectItem::ExprWithAlias { expr: expr @ Expr::Exists { .. }, alias } => (expr, alias.clone()),
            _ => continue,
        };
        let Expr::Exists { subquery, negated } = expr else { continue };
        let compared = if *negated { "=" } else { ">" };
        let text = format!("(SELECT count(*) {compared} 0 FROM ({subquery}) AS __found)");
        let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
        if let Ok(expr) = parsed.and_then(|mut parser| parser.parse_expr()) {
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

struct SubqueryValues;

impl VisitorMut for SubqueryValues {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        if let SetExpr::Select(select) = query.body.as_mut() {
            exists_as_value(select);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && function.name.to_string().eq_ignore_ascii_case("array")
            && let FunctionArguments::Subquery(query) = &function.args
        {
            let mut query = query.clone();
            let order = query.order_by.take();
            if let SetExpr::Select(select) = query.body.as_mut()
                && let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
                    select.projection.as_mut_slice()
            {
                // `ORDER BY 1` is the item itself.
                let order = match order {
                    Some(order) if order.to_string().trim_end().ends_with(" 1") => {
                        format!(" ORDER BY {item}")
                    }
                    Some(order) => format!(" {order}"),
                    None => String::new(),
                };
                let distinct = if select.distinct.take().is_some() { "DISTINCT " } else { "" };
                let text = format!("array_agg({distinct}{item}{order})");
                let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
                if let Ok(aggregate) = parsed.and_then(|mut parser| parser.parse_expr()) {
                    *item = aggregate;
                    *expr = Expr::Subquery(query);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn command(statement: Statement, text: &str, session: &Session) -> Result<SessionCommand, SqlError> {
    let Statement::Statement(inner) = statement else {
        return Ok(SessionCommand::Query(Box::new(statement)));
    };
    let name = |name: ast::Ident| match name.quote_style {
        Some(_) => name.value,
        None => name.value.to_lowercase(),
    };
    Ok(match *inner {
        ast::Statement::StartTransaction { modes: of, statements, .. } if statements.is_empty() => {
            SessionCommand::Begin(modes(of))
        }
        ast::Statement::Commit { .. } => SessionCommand::Commit,
        ast::Statement::Rollback { savepoint: Some(savepoint), .. } => {
            SessionCommand::RollbackTo(name(savepoint))
        }
        ast::Statement::Rollback { .. } => SessionCommand::Rollback,
        ast::Statement::Savepoint { name: savepoint } => SessionCommand::Savepoint(name(savepoint)),
        ast::Statement::ReleaseSavepoint { name: savepoint } => SessionCommand::Release(name(savepoint)),
        ast::Statement::Set(set) => return set_command(set),
        ast::Statement::ShowVariable { variable } => show(variable),
        ast::Statement::Discard { object_type: DiscardObject::ALL } => SessionCommand::DiscardAll,
        ast::Statement::Discard { .. } => SessionCommand::Nothing("DISCARD"),
        ast::Statement::Declare { stmts } => return declare(stmts, text, session),
        ast::Statement::AlterTable(alter) => return rename(alter),
        ast::Statement::Close { cursor: CloseCursor::All } => SessionCommand::CloseCursor(None),
        ast::Statement::Close { cursor: CloseCursor::Specific { name: cursor } } => {
            SessionCommand::CloseCursor(Some(name(cursor)))
        }
        ast::Statement::Deallocate { name: statement, .. } => {
            let is_all = statement.quote_style.is_none() && statement.value.eq_ignore_ascii_case("all");
            SessionCommand::Deallocate((!is_all).then(|| name(statement)))
        }
        ast::Statement::LISTEN { .. } => SessionCommand::Nothing("LISTEN"),
        ast::Statement::UNLISTEN { .. } => SessionCommand::Nothing("UNLISTEN"),
        ast::Statement::Copy { .. } | ast::Statement::CopyIntoSnowflake { .. } => {
            return Err(copy::to_files());
        }
        other => SessionCommand::Query(Box::new(Statement::Statement(Box::new(other)))),
    })
}

fn modes(of: Vec<TransactionMode>) -> Modes {
    let mut modes = Modes::default();
    for mode in of {
        match mode {
            TransactionMode::AccessMode(mode) => {
                modes.is_read_only = Some(mode == TransactionAccessMode::ReadOnly);
            }
            TransactionMode::IsolationLevel(level) => {
                modes.isolation = Some(level.to_string().to_ascii_lowercase());
            }
        }
    }
    modes
}

fn set_command(set: Set) -> Result<SessionCommand, SqlError> {
    let is_local = |scope: &Option<ContextModifier>| matches!(scope, Some(ContextModifier::Local));
    Ok(match set {
        Set::SetTransaction { modes: of, session, .. } => {
            SessionCommand::SetTransaction { modes: modes(of), is_session: session }
        }
        Set::SingleAssignment { ref variable, .. } if !settings::is_of_postgres(&variable.to_string()) => {
            SessionCommand::Query(Box::new(Statement::Statement(Box::new(ast::Statement::Set(set)))))
        }
        Set::SingleAssignment { scope, variable, values, .. } => {
            let name = variable.to_string().replace('"', "").to_ascii_lowercase();
            SessionCommand::Set { name, value: setting(&values)?, is_local: is_local(&scope) }
        }
        Set::SetTimeZone { local, value } => {
            let name = "timezone".to_owned();
            SessionCommand::Set { name, value: setting(&[value])?, is_local: local }
        }
        Set::SetNames { charset_name, .. } => {
            let name = "client_encoding".to_owned();
            SessionCommand::Set { name, value: Some(charset_name.value), is_local: false }
        }
        Set::SetRole { .. } | Set::SetSessionAuthorization(_) => SessionCommand::Nothing("SET"),
        other => {
            return Err(SqlError::new(code::FEATURE_NOT_SUPPORTED, format!("{other} is not supported")));
        }
    })
}

/// A setting's value as text; `None` for DEFAULT.
fn setting(values: &[Expr]) -> Result<Option<String>, SqlError> {
    if crate::settings::is_default(values) {
        return Ok(None);
    }
    let values = values.iter().map(setting_text).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(values.join(", ")))
}

fn setting_text(value: &Expr) -> Result<String, SqlError> {
    match value {
        Expr::Value(value) => Ok(match &value.value {
            Value::Number(number, _) => number.clone(),
            Value::Boolean(flag) => if *flag { "on" } else { "off" }.to_owned(),
            other => match other.clone().into_string() {
                Some(text) => text,
                None => other.to_string(),
            },
        }),
        Expr::UnaryOp { .. } | Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
            Ok(value.to_string().replace(' ', ""))
        }
        Expr::Interval(interval) => Ok(interval.to_string()),
        other => {
            Err(SqlError::new(code::SYNTAX, format!("syntax error: {other} is not a value of a setting")))
        }
    }
}

fn show(variable: Vec<ast::Ident>) -> SessionCommand {
    let words: Vec<String> = variable.iter().map(|word| word.value.to_ascii_lowercase()).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["all"] => SessionCommand::ShowAll,
        ["transaction", "isolation", "level"] => SessionCommand::Show("transaction_isolation".to_owned()),
        ["time", "zone"] => SessionCommand::Show("timezone".to_owned()),
        ["session", "authorization"] => SessionCommand::Show("session_authorization".to_owned()),
        words => {
            let name = words.join(".");
            if !name.starts_with("datafusion.") {
                return SessionCommand::Show(name);
            }
            let show = ast::Statement::ShowVariable { variable };
            SessionCommand::Query(Box::new(Statement::Statement(Box::new(show))))
        }
    }
}

fn declare(statements: Vec<ast::Declare>, text: &str, session: &Session) -> Result<SessionCommand, SqlError> {
    let unsupported =
        || SqlError::new(code::SYNTAX, "syntax error: DECLARE name CURSOR FOR query is expected");
    let Ok([declare]) = <[_; 1]>::try_from(statements) else { return Err(unsupported()) };
    let (Some(query), [name]) = (declare.for_query, declare.names.as_slice()) else {
        return Err(unsupported());
    };
    let name = match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    };
    Ok(SessionCommand::Declare {
        name,
        is_held: declare.hold == Some(true),
        is_binary: declare.binary == Some(true),
        is_scroll: declare.scroll == Some(true),
        query: Box::new(query_of(session, &query.to_string())?),
        text: text.to_owned(),
    })
}

/// The one change of a table's definition that there is.
fn rename(alter: ast::AlterTable) -> Result<SessionCommand, SqlError> {
    let folded = |name: &ast::Ident| match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    };
    let parts: Vec<String> = alter.name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect();
    let table = match <[String; 3]>::try_from(parts) {
        Ok([catalog, schema, table]) => TableReference::full(catalog, schema, table),
        Err(parts) => match <[String; 2]>::try_from(parts) {
            Ok([schema, table]) => TableReference::partial(schema, table),
            Err(mut parts) => TableReference::bare(parts.pop().unwrap_or_default()),
        },
    };
    let [AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(to) }] =
        alter.operations.as_slice()
    else {
        let message = "ALTER TABLE can only give a table another name: ALTER TABLE a RENAME TO b";
        return Err(SqlError::new(code::FEATURE_NOT_SUPPORTED, message));
    };
    let Some(to) = to.0.last().and_then(|part| part.as_ident()).map(folded) else {
        return Err(SqlError::new(code::SYNTAX, "syntax error: RENAME TO a name is expected"));
    };
    Ok(SessionCommand::Rename { table, to, may_miss: alter.if_exists })
}
