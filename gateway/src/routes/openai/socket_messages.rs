//! The messages of a WebSocket's client. Their bytes count among those of bodies from the first on, and have as long to
//! arrive as those have.

use std::cell::RefCell;
use std::rc::Rc;

use actix_web::error::PayloadError;
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{FromRequest as _, HttpRequest, HttpResponse, dev};
use actix_ws::{CloseCode, CloseReason, Item, Message, MessageStream, ProtocolError, Session};
use base::{Nanos, Time};
use futures_util::StreamExt as _;
use serving::clock::Clock;
use serving::error::internal;

use super::frame_meter::{FrameFault, FrameMeter};
use crate::body::budget::{BodyCharge, HeldBody};
use crate::body::{begin, no_room};
use crate::error::ApiError;
use crate::state::{App, CurrentApp};

/// What a client says.
pub(super) enum SocketMessage {
    /// `is_held`: it counts among bodies.
    Text {
        text: Bytes,
        is_held: bool,
    },
    Ping(Bytes),
    Pong,
    Close,
}

/// Why a connection is closed.
pub(super) fn closed(code: CloseCode, why: impl Into<String>) -> CloseReason {
    CloseReason { code, description: Some(why.into()) }
}

/// What has come of frames and is in no message yet.
#[derive(Debug)]
struct ArrivingFrames {
    meter: FrameMeter,
    charge: BodyCharge,
    /// When the message began that is not whole.
    begun: Option<Time>,
    /// Why no more is taken.
    fault: Option<CloseReason>,
}

impl ArrivingFrames {
    /// Takes bytes as they come, before anything keeps them.
    fn take(&mut self, bytes: &[u8], app: &App) -> Result<(), PayloadError> {
        let (limits, before) = (&app.config.limits, self.meter.messages);
        if let Err(fault) = self.meter.follow(bytes, limits.body_bytes_max.0) {
            self.fault = Some(match fault {
                FrameFault::Message(max) => too_long(max),
                FrameFault::Control => closed(CloseCode::Protocol, "a control frame has more than 125 bytes"),
            });
            return Err(PayloadError::Overflow);
        }
        let max = limits.bodies_bytes_max.0;
        if !self.charge.take(bytes.len() as u64, max) {
            self.fault = Some(full(max));
            return Err(PayloadError::Overflow);
        }
        if self.meter.messages > before || !self.meter.is_in_message() {
            self.begun = None;
        }
        if self.meter.is_in_message() {
            self.begun.get_or_insert(app.runtime.shared.clock.now());
        }
        Ok(())
    }
}

fn too_long(max: u64) -> CloseReason {
    closed(CloseCode::Size, format!("a message has more than {max} bytes (limits.body_bytes_max)"))
}

fn full(max: u64) -> CloseReason {
    closed(CloseCode::Again, no_room(max).to_string())
}

/// The messages of a connection.
pub(super) struct SocketMessages {
    frames: MessageStream,
    incoming: Rc<RefCell<ArrivingFrames>>,
    /// The message whose frames are coming, where it has several.
    parts: Option<HeldBody>,
    clock: Clock,
}

/// Has a connection begin: the reply, what is said on it, and what its client says.
pub(super) async fn open(
    current: &Data<CurrentApp>,
    request: &HttpRequest,
    payload: Payload,
) -> Result<(HttpResponse, Session, SocketMessages), ApiError> {
    let app = current.get();
    let (meter, charge) = (FrameMeter::default(), app.bodies.charge());
    let incoming = Rc::new(RefCell::new(ArrivingFrames { meter, charge, begun: None, fault: None }));
    let (taking, state) = (Rc::clone(&incoming), current.clone());
    let counted = payload.map(move |bytes| -> Result<Bytes, PayloadError> {
        let bytes = bytes?;
        taking.borrow_mut().take(&bytes, &state.get())?;
        Ok(bytes)
    });
    let mut counted = dev::Payload::Stream { payload: counted.boxed_local() };
    let payload = Payload::from_request(request, &mut counted).await.map_err(internal)?;
    let (reply, session, frames) = actix_ws::handle(request, payload)
        .map_err(|error| ApiError::invalid("Upgrade", error.to_string()))?;
    // Longer ones do not come this far.
    let frames = frames.max_frame_size(usize::MAX);
    let clock = app.runtime.shared.clock;
    Ok((reply, session, SocketMessages { frames, incoming, parts: None, clock }))
}

impl SocketMessages {
    /// The next message, or why there is none. Nothing is lost where this is dropped.
    pub(super) async fn next(&mut self, app: &App) -> Option<Result<SocketMessage, CloseReason>> {
        loop {
            let frame = self.frames.recv().await?;
            {
                let mut incoming = self.incoming.borrow_mut();
                let unfinished = incoming.meter.unfinished;
                incoming.charge.shrink_to(unfinished);
            }
            let message = match frame {
                Ok(Message::Text(text)) => SocketMessage::Text { text: text.into_bytes(), is_held: false },
                Ok(Message::Ping(bytes)) => SocketMessage::Ping(bytes),
                Ok(Message::Pong(_)) => SocketMessage::Pong,
                Ok(Message::Close(_)) => SocketMessage::Close,
                Ok(Message::Nop) => continue,
                Ok(Message::Binary(_) | Message::Continuation(Item::FirstBinary(_))) => {
                    return Some(Err(closed(CloseCode::Unsupported, "a message must be text: JSON")));
                }
                Ok(Message::Continuation(item)) => match self.join(&item, app) {
                    Ok(Some(text)) => SocketMessage::Text { text, is_held: true },
                    Ok(None) => continue,
                    Err(reason) => return Some(Err(reason)),
                },
                Err(error) => return Some(Err(self.reason(&error))),
            };
            return Some(Ok(message));
        }
    }

    /// Takes a part of a message; the message with its last. Parts are copied, so that small ones hold no large buffers.
    fn join(&mut self, item: &Item, app: &App) -> Result<Option<Bytes>, CloseReason> {
        let (Item::FirstText(bytes) | Item::FirstBinary(bytes) | Item::Continue(bytes) | Item::Last(bytes)) =
            item;
        let mut body = self.parts.take().unwrap_or_else(|| begin(app));
        if !body.extend(bytes) {
            return Err(full(body.max()));
        }
        if !matches!(item, Item::Last(_)) {
            self.parts = Some(body);
            return Ok(None);
        }
        let text = body.into_bytes();
        if std::str::from_utf8(&text).is_err() { Err(not_utf8()) } else { Ok(Some(text)) }
    }

    /// Why no more can be read.
    fn reason(&self, error: &ProtocolError) -> CloseReason {
        match error {
            ProtocolError::Io(cause) if cause.kind() == std::io::ErrorKind::InvalidData => not_utf8(),
            _ => {
                let fault = self.incoming.borrow_mut().fault.take();
                fault.unwrap_or_else(|| closed(CloseCode::Protocol, error.to_string()))
            }
        }
    }

    /// Whether a message has begun so long ago and is not whole.
    pub(super) fn is_slow(&self, patience: Nanos) -> bool {
        let begun = self.incoming.borrow().begun;
        begun.is_some_and(|begun| self.clock.now().since(begun) >= patience)
    }

    /// Nothing was read for a while, for which no client is to blame.
    pub(super) fn go_on(&self) {
        if let Some(begun) = &mut self.incoming.borrow_mut().begun {
            *begun = self.clock.now();
        }
    }
}

fn not_utf8() -> CloseReason {
    closed(CloseCode::Invalid, "a message must be UTF-8")
}
