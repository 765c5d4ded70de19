//! `/v1/responses` over a WebSocket, as OpenAI has it: a message asks for a response, whose events are messages back.
//!
//! What is asked for on one connection is answered one after the other. A connection knows its last responses, kept or
//! not, so that the next goes on from one. Each counts as a POST of its tenant's, and the key is looked at anew. The work
//! ends with the connection.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::UPGRADE;
use actix_web::web::{self, Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse, ResponseError as _};
use actix_ws::{CloseCode, CloseReason, Closed, Session};
use base::{Millis, Nanos, TenantId, Time};
use futures_util::StreamExt as _;
use futures_util::stream::LocalBoxStream;
use serde_json::{Value, json};
use serving::caller::Caller;
use serving::error::{RequestError, internal};
use serving::traces::Origin;
use store::StoredResponse;
use tokio::time::error::Elapsed;

use super::last_responses::LastResponses;
use super::response_create::{ResponseCreate, stream_id_of};
use super::socket_messages::{self, SocketMessage, SocketMessages, closed};
use super::{begin, of_client, stream};
use crate::auth::{self, Scoped, scope};
use crate::body;
use crate::error::{ApiError, ErrorBody};
use crate::json::JsonFields;
use crate::routes::lower;
use crate::services::prepare::RequestContext;
use crate::services::{openai, responses};
use crate::state::{App, CurrentApp};
use crate::wire::openai::{PreviousResponse, ResponseEnvelope, ResponseEvents, all_said};

/// Requests that wait on a connection while another is answered.
const WAITING_MAX: usize = 8;
/// Age at which a connection takes no further request: an hour, as OpenAI has it.
const CONNECTION_MAX: Millis = Millis(3_600_000);
/// Time between two looks whether the server ends, and whether the client is there.
const LOOK: Duration = Duration::from_secs(1);
/// So many times `server.keep_alive_ms` without an answer to a ping, and the client is gone.
const SILENCES_MAX: u64 = 2;

/// Answers conversations over a WebSocket.
#[utoipa::path(
    get, path = "/v1/responses", tag = "openai",
    responses(
        (status = 101, description = "a WebSocket: messages of the type `response.create` with what POST takes, and events back"),
        (status = 400, body = ErrorBody, description = "no WebSocket is asked for")
    ),
    security(("key" = []))
)]
pub async fn connect_responses(
    current: Data<CurrentApp>,
    scoped: Scoped,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    scope::check_write(&scoped.scope)?;
    let upgrade = request.headers().get(UPGRADE);
    if !upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return Err(ApiError::invalid("Upgrade", "must be websocket; without one a response is a POST"));
    }
    let (reply, session, messages) = socket_messages::open(&current, &request, payload).await?;
    let app = Data::from(current.get());
    let begun = app.runtime.shared.clock.now();
    let (waiting, last, pinged) = Default::default();
    let heard = begun;
    let connection =
        ResponseConnection { app, current, request, session, messages, waiting, last, begun, heard, pinged };
    actix_web::rt::spawn(Origin::carried(connection.run()));
    Ok(reply)
}

/// A connection.
struct ResponseConnection {
    /// The state that what is answered now sees: the one that is current as its turn comes.
    app: Data<App>,
    current: Data<CurrentApp>,
    /// The request that it began with, for its key and what it says of its client.
    request: HttpRequest,
    session: Session,
    messages: SocketMessages,
    /// What is asked for and not begun.
    waiting: VecDeque<WaitingRequest>,
    last: LastResponses,
    begun: Time,
    /// When the client was last heard of, or told something.
    heard: Time,
    /// The first ping that was not answered.
    pinged: Option<Time>,
}

/// A request that waits for its turn.
struct WaitingRequest {
    /// Its deadline counts from then.
    arrival: Time,
    body: Bytes,
}

/// Why a connection is over: the client has gone, or is told this.
type Over = Option<CloseReason>;

/// The events of a response, and all that was said before it.
struct StreamedResponse {
    events: LocalBoxStream<'static, Result<Bytes, Infallible>>,
    said: Vec<Value>,
}

impl ResponseConnection {
    async fn run(mut self) {
        let over = self.talk().await;
        if let Err(Some(reason)) = over {
            // An error: the client has gone first.
            let _ = self.session.close(Some(reason)).await;
        }
    }

    /// Answers until the connection is over.
    async fn talk(&mut self) -> Result<(), Over> {
        loop {
            self.app = Data::from(self.current.get());
            self.end_when_old().await?;
            if let Some(request) = self.waiting.pop_front() {
                self.answer(request).await?;
                continue;
            }
            if self.app.runtime.is_draining() {
                return Err(Some(closed(CloseCode::Away, "the server shuts down")));
            }
            let message = tokio::time::timeout(LOOK, self.messages.next(&self.app)).await;
            self.listen(message).await?;
        }
    }

    fn now(&self) -> Time {
        self.app.runtime.shared.clock.now()
    }

    /// Sees whether the client is still there.
    async fn look_after_client(&mut self) -> Result<(), Over> {
        let (now, silence) = (self.now(), Nanos::from(self.app.config.server.keep_alive_ms));
        match self.pinged {
            Some(pinged) if now.since(pinged) >= silence * SILENCES_MAX => Err(None),
            None if now.since(self.heard) >= silence => {
                self.pinged = Some(now);
                self.session.ping(b"").await.map_err(|Closed| None)
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn end_when_old(&mut self) -> Result<(), Over> {
        if self.now().since(self.begun) < Nanos::from(CONNECTION_MAX) {
            return Ok(());
        }
        let message = format!("a connection takes requests for {CONNECTION_MAX}: open another");
        let (code, kind) = ("websocket_connection_limit_reached", "invalid_request_error");
        let error = json!({"message": message, "type": kind, "param": null, "code": code});
        self.say(json!({"type": "error", "status": 400, "error": error}).to_string()).await?;
        Err(Some(closed(CloseCode::Normal, code)))
    }

    /// Takes what the client says, or looks after one that says nothing for a while.
    async fn listen(
        &mut self,
        message: Result<Option<Result<SocketMessage, CloseReason>>, Elapsed>,
    ) -> Result<(), Over> {
        match message {
            Err(_) => self.look_after_client().await?,
            Ok(None) => return Err(None),
            Ok(Some(Err(reason))) => return Err(Some(reason)),
            Ok(Some(Ok(message))) => self.take(message).await?,
        }
        self.end_when_slow()
    }

    /// A message has as long to arrive as a body.
    fn end_when_slow(&self) -> Result<(), Over> {
        let patience = self.app.config.server.body_ms_max;
        if !self.messages.is_slow(patience.into()) {
            return Ok(());
        }
        let why = format!("a message did not arrive within {patience} (server.body_ms_max)");
        Err(Some(closed(CloseCode::Policy, why)))
    }

    async fn take(&mut self, message: SocketMessage) -> Result<(), Over> {
        (self.heard, self.pinged) = (self.now(), None);
        match message {
            SocketMessage::Text { text, is_held } => match self.hold(&text, is_held) {
                Ok(body) => {
                    self.waiting.push_back(WaitingRequest { arrival: self.heard, body });
                    Ok(())
                }
                Err(error) => {
                    let stream_id = stream_id_of(&text);
                    self.refuse(&error.into(), stream_id.as_deref()).await
                }
            },
            SocketMessage::Ping(bytes) => self.session.pong(&bytes).await.map_err(|Closed| None),
            SocketMessage::Pong => Ok(()),
            SocketMessage::Close => Err(Some(CloseReason::from(CloseCode::Normal))),
        }
    }

    /// Keeps a request until its turn: together they have no more than one body may.
    fn hold(&self, text: &Bytes, is_held: bool) -> Result<Bytes, RequestError> {
        let busy = |what, limit| {
            let retry_after = Millis(1_000);
            Err(RequestError::Busy { what, limit, retry_after })
        };
        if self.waiting.len() >= WAITING_MAX {
            return busy("requests that wait on one connection", WAITING_MAX.to_string());
        }
        let waiting: usize = self.waiting.iter().map(|request| request.body.len()).sum();
        let max = self.app.config.limits.body_bytes_max.0;
        if (waiting + text.len()) as u64 > max {
            let limit = format!("{max} (limits.body_bytes_max)");
            return busy("bytes of requests that wait on one connection", limit);
        }
        if is_held { Ok(text.clone()) } else { body::hold(text, &self.app) }
    }

    async fn say(&mut self, text: String) -> Result<(), Over> {
        self.heard = self.now();
        self.session.text(text).await.map_err(|Closed| None)
    }

    async fn refuse(&mut self, error: &ApiError, stream_id: Option<&str>) -> Result<(), Over> {
        let status = error.status_code().as_u16();
        let event = json!({"type": "error", "status": status, "error": error.body().error});
        self.say(named(&event.to_string(), stream_id)).await
    }

    /// Answers a request, and takes what comes meanwhile.
    async fn answer(&mut self, WaitingRequest { arrival, body }: WaitingRequest) -> Result<(), Over> {
        // Before it is read: what is wrong counts too, and whose key has ended asks for nothing.
        let caller = match auth::again(&self.app, &self.request).await {
            Ok(caller) => caller,
            Err(error) => {
                let stream_id = stream_id_of(&body);
                self.last.forget(stream_id.as_deref());
                self.refuse(&error, stream_id.as_deref()).await?;
                let is_for_good =
                    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&error.status_code());
                let reason = closed(CloseCode::Policy, error.to_string());
                return if is_for_good { Err(Some(reason)) } else { Ok(()) };
            }
        };
        let copy = body.clone();
        let read = web::block(move || ResponseCreate::read(&copy)).await.map_err(internal);
        let create = match read.unwrap_or_else(|error| Err((None, error.into()))) {
            Ok(create) => create,
            Err((stream_id, error)) => {
                self.last.forget(stream_id.as_deref());
                return self.refuse(&(*error).into(), stream_id.as_deref()).await;
            }
        };
        let begun = self.begin(caller, (arrival, &body), &create).await;
        // Others have its room while it is answered.
        drop(body);
        self.messages.go_on();
        match begun {
            Ok(answering) => self.tell(answering, create.stream_id).await,
            Err(error) => self.refuse(&error, create.stream_id.as_deref()).await,
        }
    }

    async fn begin(
        &mut self,
        caller: Caller,
        (arrival, body): (Time, &Bytes),
        create: &ResponseCreate,
    ) -> Result<StreamedResponse, ApiError> {
        // What is gone on from in vain is forgotten, as OpenAI has it.
        let own = self.last.take(create.stream_id.as_deref());
        let previous = match create.previous.as_deref() {
            Some(id) => Some(self.conversation(caller.tenant, id, own).await?),
            None => None,
        };
        let prepare = move |context: RequestContext<'_>, mut fields: JsonFields| {
            ResponseCreate::leave_response(&mut fields);
            // One that is not kept is gone on from here.
            let said = all_said(previous.as_ref(), fields.copy("input"))?;
            Ok::<_, RequestError>((openai::response(context, fields, previous)?, said))
        };
        let (model, (prepared, said)) = lower((&self.app, caller), body, arrival, prepare).await?;
        let openai::PreparedResponse { asked, echo, conversation, .. } = prepared;
        let asked = of_client(asked, self.request.headers())?;
        let (deadline, tools) = (asked.work.deadline, asked.tools);
        let Ok(handle) = begin(&self.app, &model, caller, asked.work).await? else {
            return Err(ApiError::Late);
        };
        let envelope = ResponseEnvelope::new(handle.relquery(), model.model(), echo).calling(tools);
        let events = Box::new(ResponseEvents::new(envelope));
        let talk = stream::Talk::Events(events, conversation.unwrap_or_default());
        let events = stream::events_of(self.app.clone(), handle, talk, deadline).boxed_local();
        Ok(StreamedResponse { events, said })
    }

    /// What was said up to and with the response that a request goes on from.
    async fn conversation(
        &self,
        tenant: TenantId,
        id: &str,
        own: Option<(String, StoredResponse)>,
    ) -> Result<PreviousResponse, ApiError> {
        let own = own.filter(|(known, _)| known == id).map(|(_, response)| response);
        // Or another stream's.
        let response = match own.or_else(|| self.last.find(id)) {
            Some(response) => response,
            None => responses::find(&self.app, tenant, id).await?,
        };
        Ok(responses::conversation(&response)?)
    }

    async fn tell(
        &mut self,
        StreamedResponse { mut events, said }: StreamedResponse,
        stream_id: Option<String>,
    ) -> Result<(), Over> {
        let mut end = String::new();
        loop {
            tokio::select! {
                chunk = events.next() => {
                    let Some(Ok(chunk)) = chunk else { break };
                    for event in events_in(&chunk) {
                        event.clone_into(&mut end);
                        self.say(named(event, stream_id.as_deref())).await?;
                    }
                    self.end_when_slow()?;
                }
                message = tokio::time::timeout(LOOK, self.messages.next(&self.app)) => {
                    self.listen(message).await?;
                }
            }
        }
        if let Some(last) = answered(&end, said) {
            self.last.keep(stream_id, last);
        }
        Ok(())
    }
}

/// The events in a piece of a stream; comments, which say that it goes on, are none.
fn events_in(chunk: &[u8]) -> impl Iterator<Item = &str> {
    let text = std::str::from_utf8(chunk).unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix("data: "))
}

/// An event with the `stream_id` of its request.
fn named(event: &str, stream_id: Option<&str>) -> String {
    match (stream_id, event.strip_prefix('{')) {
        (Some(id), Some(fields)) => format!("{{\"stream_id\":\"{id}\",{fields}"),
        (Some(_) | None, _) => event.to_owned(),
    }
}

/// A response that ended well, by its last event.
fn answered(end: &str, said: Vec<Value>) -> Option<(String, StoredResponse)> {
    let mut event: Value = serde_json::from_str(end).ok()?;
    let response = event["response"].take();
    let is_whole = ["completed", "incomplete"].contains(&response["status"].as_str()?);
    let id = response["id"].as_str().filter(|_| is_whole)?.to_owned();
    Some((id, StoredResponse { input: Value::Array(said).to_string(), reply: response.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_messages_and_the_last_is_gone_on_from() {
        let chunk = b": waiting\n\nevent: a\ndata: {\"type\":\"a\"}\n\nevent: b\ndata: {\"type\":\"b\"}\n\n";
        assert_eq!(events_in(chunk).collect::<Vec<_>>(), [r#"{"type":"a"}"#, r#"{"type":"b"}"#]);
        assert_eq!(named(r#"{"type":"a"}"#, Some("x")), r#"{"stream_id":"x","type":"a"}"#);
        assert_eq!(named(r#"{"type":"a"}"#, None), r#"{"type":"a"}"#);
        let end = |status: &str| {
            let response = json!({"id": "resp-1", "status": status, "output": [{"type": "message"}]});
            answered(&json!({"response": response}).to_string(), vec![json!({"role": "user"})])
        };
        let (id, response) = end("completed").expect("it ended well");
        assert_eq!((id.as_str(), response.input.as_str()), ("resp-1", r#"[{"role":"user"}]"#));
        let previous = responses::conversation(&response).expect("it is gone on from");
        assert_eq!(previous.items, [json!({"role": "user"}), json!({"type": "message"})]);
        assert!(end("incomplete").is_some() && end("failed").is_none() && answered("", Vec::new()).is_none());
    }
}
