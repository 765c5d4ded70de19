//! `/v1/sql`: a statement, answered with a stream of rows.

use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{self, Bytes, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::{Stream, StreamExt as _};
use serde_json::json;
use serving::clock::{Deadline, Late};
use serving::error::RequestError;
use sql::Running;
use sql::format::{ResultFormat, ResultWriter};

use crate::arrival::arrival_of;
use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::error::Refusals;
use crate::routes::{only_post, read_body};
use crate::services::sql::{self as service, failed};
use crate::state::App;
use crate::wire::sql::SqlRequest;

/// The route.
pub fn configure(routes: &mut ServiceConfig) {
    routes.service(web::resource("/v1/sql").route(web::post().to(run)).default_service(web::to(only_post)));
}

/// Runs a statement of SQL.
#[utoipa::path(
    post, path = "/v1/sql", tag = "sql",
    request_body(content = Object, description = "query: one statement; format: jsonl (one object a row), csv or arrow \
        (IPC stream); settings: {name: value, ..} of the session, such as relserve.max_tokens; deadline_ms. AI columns \
        run as relQueries of class dashboard. An error after the first row is a last line {\"error\": {..}} in jsonl, \
        and breaks the connection in the other formats: a result is never cut short silently."),
    responses(
        (status = 200, description = "the rows"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn run(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let body = read_body(&app, &request, payload).await?;
    let clock = app.runtime.shared.clock;
    let asked = SqlRequest::read(crate::json::object(&body)?)?;
    let deadline = asked.deadline.map(|span| Deadline::new(arrival_of(&request, clock), span));
    let session = service::session(&app, caller).await?;
    for (name, value) in &asked.settings {
        service::set(&session, name, value).await?;
    }
    let started = clock.within(deadline, session.query(&asked.query)).await;
    let running = started.map_err(|Late| RequestError::Deadline)?.map_err(failed)?;
    let kind = match asked.format {
        ResultFormat::JsonLines => "application/x-ndjson",
        ResultFormat::Csv => "text/csv; charset=utf-8",
        ResultFormat::Arrow => "application/vnd.apache.arrow.stream",
    };
    let rows = rows(app, running, asked.format, deadline)?;
    Ok(HttpResponse::Ok().insert_header((CONTENT_TYPE, kind)).streaming(rows))
}

/// A result on its way out.
struct Rows {
    app: Data<App>,
    running: Running,
    format: ResultFormat,
    writer: ResultWriter,
    deadline: Option<Deadline>,
    is_over: bool,
}

fn rows(
    app: Data<App>,
    running: Running,
    format: ResultFormat,
    deadline: Option<Deadline>,
) -> Result<impl Stream<Item = Result<Bytes, RequestError>>, RequestError> {
    let writer = ResultWriter::new(format, &running.stream.schema()).map_err(failed)?;
    let rows = Rows { app, running, format, writer, deadline, is_over: false };
    Ok(futures_util::stream::unfold(rows, |mut rows| async move {
        let piece = rows.next().await?;
        Some((piece.map(Bytes::from), rows))
    }))
}

impl Rows {
    async fn next(&mut self) -> Option<Result<Vec<u8>, RequestError>> {
        if self.is_over {
            return None;
        }
        let clock = self.app.runtime.shared.clock;
        let written = match clock.within(self.deadline, self.running.stream.next()).await {
            Err(Late) => Err(RequestError::Deadline),
            Ok(Some(Ok(batch))) => self.writer.batch(&batch).map_err(failed),
            Ok(Some(Err(error))) => Err(failed(error)),
            Ok(None) => {
                self.is_over = true;
                self.writer.end(&self.running.stream.schema()).map_err(failed)
            }
        };
        match written {
            Err(error) if self.format == ResultFormat::JsonLines => {
                self.is_over = true;
                let mut line = json!(crate::error::body(&error)).to_string();
                line.push('\n');
                Some(Ok(line.into_bytes()))
            }
            Err(error) => {
                self.is_over = true;
                Some(Err(error))
            }
            Ok(bytes) => Some(Ok(bytes)),
        }
    }
}
