//! `/v1/sql`: a statement, answered with a stream of rows; what its deadline cuts off is under a ticket.

use std::sync::Arc;

use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::web::{self, Bytes, Data, Path, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, ResponseError as _};
use futures_util::{Stream, StreamExt as _};
use serde_json::{Value, json};
use serving::caller::Caller;
use serving::clock::{Deadline, Late};
use serving::error::{RequestError, internal, stored};
use sql::Running;
use sql::budget::StatementBudget;
use sql::format::{ResultFormat, ResultWriter};
use store::TicketState;

use crate::arrival::arrival_of;
use crate::auth::{Authenticated, Scoped};
use crate::error::ApiError;
use crate::error::Refusals;
use crate::routes::{only_get_delete, only_post, read_body};
use crate::services::lookup::find_statement;
use crate::services::sql::failed;
use crate::services::sql::kept_answers::KeptAnswers;
use crate::services::sql::tickets::{self, Detached, SqlStatement};
use crate::services::tickets::lease;
use crate::state::App;
use crate::wire::sql::SqlRequest;

/// Names the ticket that a statement's deadline makes; replies to requests with a deadline have it.
const TICKET_HEADER: &str = "relserve-ticket";

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    let ticket = web::resource("/v1/sql/{id}").route(web::get().to(read)).route(web::delete().to(delete));
    routes
        .service(web::resource("/v1/sql").route(web::post().to(run)).default_service(web::to(only_post)))
        .service(ticket.default_service(web::to(only_get_delete)));
}

/// Runs a statement of SQL.
#[utoipa::path(
    post, path = "/v1/sql", tag = "sql",
    request_body(content = Object, description = "query: one statement; format: jsonl (one object a row), csv (texts \
        that a spreadsheet would compute have a ' in front), csv_raw or arrow (IPC stream); settings: \
        {name: value, ..} of the session, such as relserve.max_tokens; deadline_ms. AI \
        columns run as relQueries of class dashboard. A statement that a budget refuses before rows of it run is a 429. An \
        error after that is a last line {\"error\": {..}} in jsonl, \
        and breaks the connection in the other formats: a result is never cut short silently. When the deadline \
        passes, the statement goes on under the ticket that the header relserve-ticket names: jsonl ends with the \
        line {\"status\": \"partial\", \"ticket\": .., \"rows\": rows so far}, the other formats break off."),
    responses(
        (status = 200, description = "the rows"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn run(
    app: Data<App>,
    Scoped { caller, scope }: Scoped,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let body = read_body(&app, &request, payload).await?;
    let clock = app.runtime.shared.clock;
    let SqlRequest { query, format, settings, deadline } = SqlRequest::parse(&body)?;
    let deadline = deadline.map(|span| Deadline::new(arrival_of(&request, clock), span));
    let statement = SqlStatement { query, settings, tables: scope.tables.clone() };
    let ticket =
        deadline.map(|deadline| DeadlineTicket { id: tickets::new_id(), deadline, answers: Arc::default() });
    let kept = ticket.as_ref().map(|ticket| &ticket.answers);
    let running = match clock.within(deadline, statement.start(&app, caller, kept)).await {
        Ok(running) => Some(running?),
        Err(Late) => None,
    };
    let id = ticket.as_ref().map(|ticket| ticket.id.clone());
    let begun = until_begun(running.as_ref().map(|running| Arc::clone(&running.query.budget)));
    let mut rows = Box::pin(rows(Rows::new((app, caller), statement, running, format, ticket)?));
    // What is refused before anything of it is let in is refused as on other routes; and the reply of what is let in begins at
    // once, however long its first row takes.
    let first = tokio::select! {
        biased;
        () = begun => None,
        piece = rows.next() => piece,
    };
    let first = match (first, &id) {
        (Some(Err(RequestError::Deadline)), Some(id)) => return Ok(late(id)),
        (first, _) => first.transpose()?,
    };
    let mut reply = HttpResponse::Ok();
    if let Some(id) = id {
        reply.insert_header((TICKET_HEADER, id));
    }
    let kind = match format {
        ResultFormat::JsonLines => "application/x-ndjson",
        ResultFormat::Csv | ResultFormat::RawCsv => "text/csv; charset=utf-8",
        ResultFormat::Arrow => "application/vnd.apache.arrow.stream",
    };
    let pieces = futures_util::stream::iter(first.map(Ok)).chain(rows).then(move |piece| told(piece, format));
    Ok(reply.insert_header((CONTENT_TYPE, kind)).streaming(pieces))
}

/// Waits until rows of a statement are let in; for ever, where it has not started.
async fn until_begun(budget: Option<Arc<StatementBudget>>) {
    match budget {
        Some(budget) => budget.until_begun().await,
        None => std::future::pending().await,
    }
}

/// A piece of a result on its way out: an error is a line where the format has words for it, and else breaks off, behind what
/// was written before it: a body that fails as soon as it is asked takes its head, and the ticket in that, with it.
async fn told(piece: Result<Bytes, RequestError>, format: ResultFormat) -> Result<Bytes, RequestError> {
    match piece {
        Err(error) if format == ResultFormat::JsonLines => {
            Ok(Bytes::from(line(&json!(crate::error::body(&error)))))
        }
        Err(error) => {
            tokio::task::yield_now().await;
            Err(error)
        }
        piece => piece,
    }
}

/// The answer where nothing is there yet, in a format without words for that.
fn late(ticket: &str) -> HttpResponse {
    let mut reply = ApiError::from(RequestError::Deadline).error_response();
    if let Ok(ticket) = HeaderValue::from_str(ticket) {
        reply.headers_mut().insert(HeaderName::from_static(TICKET_HEADER), ticket);
    }
    reply
}

/// A statement under a ticket.
#[utoipa::path(
    get, path = "/v1/sql/{id}", tag = "sql", params(("id" = String, Path)),
    responses(
        (status = 200, description = "id, status (running, completed, failed or cancelled), first_row: how many \
            rows of the result come before `rows`, 0 where a restart ran the statement again, rows: those that are \
            there, error where it failed"),
        (status = 404, body = crate::error::ErrorBody),
    ),
    security(("key" = []))
)]
pub async fn read(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let ticket = find_statement(&app, caller, &id).await?;
    Ok(HttpResponse::Ok().json(tickets::shown(&ticket)?))
}

/// Calls a statement under a ticket off.
#[utoipa::path(
    delete, path = "/v1/sql/{id}", tag = "sql", params(("id" = String, Path)),
    responses((status = 200), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn delete(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let ticket = find_statement(&app, caller, &id).await?;
    let finished = app.runtime.store.finish_ticket(&ticket.id, None, TicketState::Cancelled, None).await;
    let is_cancelled = stored(finished)?;
    tickets::cancel(&app, &ticket.id);
    Ok(HttpResponse::Ok().json(json!({ "id": *id, "object": "sql.deleted", "cancelled": is_cancelled })))
}

/// The ticket that a deadline makes.
struct DeadlineTicket {
    id: String,
    deadline: Deadline,
    /// Those that the statement has got.
    answers: Arc<KeptAnswers>,
}

impl DeadlineTicket {
    /// Writes it down; the statement goes on behind the rows that the client has. A task of its own: a ticket that is
    /// written is followed, though the client leaves meanwhile.
    async fn make(
        &self,
        app: &Data<App>,
        caller: Caller,
        statement: SqlStatement,
        (running, first_row): (Option<Running>, u64),
    ) -> Result<(), RequestError> {
        let (id, answers) = (self.id.clone(), Arc::clone(&self.answers));
        let detached = Detached { id, caller, statement, answers, running, first_row };
        let (app, lease) = (app.clone(), lease(app));
        let making = tokio::spawn(async move { tickets::make(&app, &lease, detached).await });
        making.await.map_err(internal)?
    }
}

/// A result on its way out.
struct Rows {
    app: Data<App>,
    caller: Caller,
    statement: SqlStatement,
    /// `None`: it did not start before its deadline.
    running: Option<Running>,
    format: ResultFormat,
    writer: Option<ResultWriter>,
    ticket: Option<DeadlineTicket>,
    /// Rows that went out.
    sent: u64,
    is_over: bool,
}

/// The pieces of a result.
fn rows(rows: Rows) -> impl Stream<Item = Result<Bytes, RequestError>> {
    futures_util::stream::unfold(rows, |mut rows| async move {
        let piece = rows.next().await?;
        Some((piece.map(Bytes::from), rows))
    })
}

impl Rows {
    fn new(
        (app, caller): (Data<App>, Caller),
        statement: SqlStatement,
        running: Option<Running>,
        format: ResultFormat,
        ticket: Option<DeadlineTicket>,
    ) -> Result<Self, RequestError> {
        let writer = running.as_ref().map(|running| ResultWriter::new(format, &running.stream.schema()));
        let writer = writer.transpose().map_err(failed)?;
        Ok(Self { app, caller, statement, running, format, writer, ticket, sent: 0, is_over: false })
    }

    async fn next(&mut self) -> Option<Result<Vec<u8>, RequestError>> {
        if self.is_over {
            return None;
        }
        let written = self.piece().await;
        self.is_over |= written.is_err();
        Some(written)
    }

    async fn piece(&mut self) -> Result<Vec<u8>, RequestError> {
        let clock = self.app.runtime.shared.clock;
        let deadline = self.ticket.as_ref().map(|ticket| ticket.deadline);
        let (Some(running), Some(writer)) = (&mut self.running, &mut self.writer) else {
            return self.detach().await;
        };
        match clock.within(deadline, running.stream.next()).await {
            Err(Late) => self.detach().await,
            Ok(Some(Ok(batch))) => {
                self.sent += batch.num_rows() as u64;
                writer.batch(&batch).map_err(failed)
            }
            Ok(Some(Err(error))) => Err(failed(error)),
            Ok(None) => {
                self.is_over = true;
                writer.end(&running.stream.schema()).map_err(failed)
            }
        }
    }

    /// Leaves the rest to the ticket, and says so.
    async fn detach(&mut self) -> Result<Vec<u8>, RequestError> {
        let Some(ticket) = self.ticket.take() else { return Err(RequestError::Deadline) };
        let rest = (self.running.take(), self.sent);
        ticket.make(&self.app, self.caller, self.statement.clone(), rest).await?;
        if self.format != ResultFormat::JsonLines {
            return Err(RequestError::Deadline);
        }
        self.is_over = true;
        Ok(line(&json!({ "status": "partial", "ticket": ticket.id, "rows": self.sent })))
    }
}

fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string();
    line.push('\n');
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[actix_web::test]
    async fn a_result_breaks_off_only_when_what_was_written_before_may_have_gone_out() {
        let late = || Err(RequestError::Deadline);
        assert!(told(late(), ResultFormat::Csv).now_or_never().is_none(), "the head goes first");
        assert!(told(late(), ResultFormat::Arrow).await.is_err());
        let line = told(late(), ResultFormat::JsonLines).now_or_never();
        assert!(line.is_some_and(|line| line.is_ok()), "a line needs no head start");
    }
}
