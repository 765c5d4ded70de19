//! Answers to messages: what each statement of a text gives, and how it is told.

use pgwire::error::ErrorInfo;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{CommandComplete, EmptyQueryResponse, ReadyForQuery, TransactionStatus};
use tokio::io::AsyncWrite;

use super::backend::{Backend, Outcome};
use super::command;
use super::copy;
use super::error::{SqlError, Stop, code};
use super::frontend::Frontend;
use super::rows::{self, Rows};
use super::split::split;
use super::transport::ServerOutput;

/// Answers one message, whole: what is written of it is flushed where the protocol says so.
pub(super) async fn answer<S: AsyncWrite>(
    backend: &mut Backend,
    message: Frontend,
    output: &mut ServerOutput<S>,
) -> Result<(), Stop> {
    match message {
        Frontend::Query(text) => {
            simple(backend, &text, output).await?;
            ready(backend, output).await
        }
        Frontend::Parse { name, query, types } => {
            // The statement without a name is replaced, also by one that fails.
            if name.is_empty() {
                backend.statements.remove("");
            }
            backend.parse(name, query, &types, output).await
        }
        Frontend::Bind(bind) => {
            if bind.portal.is_empty() {
                backend.portals.remove("");
            }
            backend.bind(bind, output)
        }
        Frontend::Describe { target, name } => backend.describe(target, &name, output),
        Frontend::Execute { portal, rows_max } => backend.execute(portal, rows_max, output).await,
        Frontend::Close { target, name } => backend.close(target, &name, output),
        Frontend::Flush => Ok(output.flush().await?),
        Frontend::Sync => {
            if backend.transaction.status == TransactionStatus::Idle {
                backend.portals.clear();
            }
            ready(backend, output).await
        }
        // Data of a COPY that has failed is dropped.
        Frontend::Copy => Ok(()),
        Frontend::Terminate => Err(Stop::Closed),
        Frontend::Password(_) => Err(SqlError::protocol("unexpected password message").into()),
    }
}

/// Says that the next request may come.
pub(super) async fn ready<S: AsyncWrite>(
    backend: &mut Backend,
    output: &mut ServerOutput<S>,
) -> Result<(), Stop> {
    backend.report(output)?;
    let status = backend.transaction.status;
    output.put(PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status)))?;
    Ok(output.flush().await?)
}

/// Runs the statements of a text, one after the other, up to the first that fails.
async fn simple<S: AsyncWrite>(
    backend: &mut Backend,
    text: &str,
    output: &mut ServerOutput<S>,
) -> Result<(), Stop> {
    if text.len() > backend.limits.statement_bytes_max {
        let max = backend.limits.statement_bytes_max;
        return Err(SqlError::limit("length of a statement in bytes", max).into());
    }
    let pieces = split(text)?;
    if pieces.is_empty() {
        output.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))?;
    }
    for piece in pieces {
        let command = command::parse(&backend.session, &piece)?;
        let outcome = backend.run(&command, piece.written).await?;
        deliver(backend, outcome, None, output).await?;
    }
    Ok(())
}

/// Sends what a statement came to. `formats` are those of a portal, whose columns were described before.
pub(super) async fn deliver<S: AsyncWrite>(
    backend: &mut Backend,
    outcome: Outcome,
    formats: Option<&[i16]>,
    output: &mut ServerOutput<S>,
) -> Result<(), Stop> {
    match outcome {
        Outcome::Done(tag) => Ok(complete(output, tag)?),
        Outcome::Changed { tag, query } => {
            let unknown = (query.progress.unknown(), rows::why_unknown(&query));
            notice(query.progress.failed(), unknown, output)?;
            Ok(complete(output, tag)?)
        }
        Outcome::Rows { mut rows, word } => {
            let sent = send(&mut rows, formats, &[], usize::MAX, output).await?;
            Ok(complete(output, tag(word, sent))?)
        }
        Outcome::Fetched { mut cursor, rows_max, name } => {
            let own = own_formats(cursor.is_binary);
            let sent = send(&mut cursor.rows, formats, own, rows_max, output).await?;
            backend.put_back(name, cursor);
            Ok(complete(output, format!("FETCH {sent}"))?)
        }
        Outcome::Scrolled { mut rows, is_binary } => {
            let sent = send(&mut rows, formats, own_formats(is_binary), usize::MAX, output).await?;
            Ok(complete(output, format!("FETCH {sent}"))?)
        }
        Outcome::Copied { mut rows, format } => {
            let sent = copy::send(&mut rows, &format, output).await?;
            rows.notice(output)?;
            Ok(complete(output, format!("COPY {sent}"))?)
        }
    }
}

/// The formats of a cursor that was declared binary, or was not.
fn own_formats(is_binary: bool) -> &'static [i16] {
    if is_binary { &[1] } else { &[] }
}

async fn send<S: AsyncWrite>(
    rows: &mut Rows,
    formats: Option<&[i16]>,
    own_formats: &[i16],
    rows_max: usize,
    output: &mut ServerOutput<S>,
) -> Result<usize, Stop> {
    let fields = rows.columns.fields(formats.unwrap_or(own_formats))?;
    if formats.is_none() {
        output.put(rows::describe(&fields))?;
    }
    let sent = rows::send(rows, &fields, rows_max, output).await?;
    rows.notice(output)?;
    Ok(sent)
}

/// What a statement with rows is told to be done with: Postgres counts the rows of queries only.
pub(super) fn tag(word: &str, rows: usize) -> String {
    if word == "SELECT" { format!("SELECT {rows}") } else { word.to_owned() }
}

/// Says that a statement is done.
pub(super) fn complete<S: AsyncWrite>(output: &mut ServerOutput<S>, tag: String) -> Result<(), SqlError> {
    output.put(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag)))
}

impl Rows {
    /// Tells the client of calls that failed, and of answers that are not computed, since it was told.
    pub(super) fn notice<S: AsyncWrite>(&mut self, output: &mut ServerOutput<S>) -> Result<(), SqlError> {
        let failed = self.newly_failed();
        notice(failed, self.newly_unknown(), output)
    }
}

/// Tells the client of calls that failed, and of answers that are not computed and why.
fn notice<S: AsyncWrite>(
    failed: u64,
    (unknown, why): (u64, String),
    output: &mut ServerOutput<S>,
) -> Result<(), SqlError> {
    if failed > 0 {
        let message = format!("{failed} of the AI calls failed and are NULL; SELECT * FROM relserve.errors");
        tell("WARNING", code::WARNING, message, output)?;
    }
    if unknown > 0 {
        let message = format!(
            "{unknown} of the AI answers are not computed and are NULL: {why}; \
             SET relserve.cached_only = false computes them"
        );
        tell("NOTICE", code::SUCCESS, message, output)?;
    }
    Ok(())
}

fn tell<S: AsyncWrite>(
    severity: &str,
    code: &str,
    message: String,
    output: &mut ServerOutput<S>,
) -> Result<(), SqlError> {
    let mut info = ErrorInfo::new(severity.to_owned(), code.to_owned(), message);
    info.severity_nonlocalized = Some(severity.to_owned());
    output.put(PgWireBackendMessage::NoticeResponse(info.into()))
}
