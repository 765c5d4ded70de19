//! The two directions of a connection, apart: answers are written while the client is watched.
//!
//! Every wait here may be given up and taken up again: nothing read or written is lost with it.

use std::future;
use std::io;

use bytes::{Buf, BytesMut};
use pgwire::messages::PgWireBackendMessage;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use super::error::{SqlError, Stop, code};
use super::frontend::Frontend;

/// Bytes that are read ahead while a statement runs.
const READ_AHEAD_MAX: usize = 64 * 1024;
/// Bytes that wait to be written before the writer waits for the client.
const OUTPUT_MAX: usize = 64 * 1024;

/// What comes from the client.
pub(super) struct ClientInput<S> {
    half: ReadHalf<S>,
    buffer: BytesMut,
    message_bytes_max: usize,
}

impl<S: AsyncRead> ClientInput<S> {
    pub(super) fn new(half: ReadHalf<S>, message_bytes_max: usize) -> Self {
        Self { half, buffer: BytesMut::new(), message_bytes_max }
    }

    /// The next message; `Stop::Closed` where there is none.
    pub(super) async fn next(&mut self) -> Result<Frontend, Stop> {
        loop {
            if let Some(message) = Frontend::take(&mut self.buffer, self.message_bytes_max)? {
                return Ok(message);
            }
            if self.half.read_buf(&mut self.buffer).await? == 0 {
                return Err(Stop::Closed);
            }
        }
    }

    /// Drops what the client still sends, until it goes away.
    pub(super) async fn discard(&mut self) {
        loop {
            self.buffer.clear();
            if !matches!(self.half.read_buf(&mut self.buffer).await, Ok(1..)) {
                return;
            }
        }
    }

    /// Returns when the client goes away. What it sends meanwhile is kept, up to a limit; behind the limit
    /// nothing is read, and the client's end is seen later.
    pub(super) async fn closed(&mut self) {
        while self.buffer.len() < READ_AHEAD_MAX {
            match self.half.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        future::pending().await
    }
}

/// What goes to the client.
pub(super) struct ServerOutput<S> {
    half: WriteHalf<S>,
    pub(super) buffer: BytesMut,
}

impl<S: AsyncWrite> ServerOutput<S> {
    pub(super) fn new(half: WriteHalf<S>) -> Self {
        Self { half, buffer: BytesMut::new() }
    }

    /// Adds a message, whole.
    pub(super) fn put(&mut self, message: PgWireBackendMessage) -> Result<(), SqlError> {
        let start = self.buffer.len();
        message.encode(&mut self.buffer).map_err(|error| {
            self.buffer.truncate(start);
            SqlError::new(code::INTERNAL, error.to_string())
        })
    }

    /// Sends what there is.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while self.buffer.has_remaining() {
            if self.half.write_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.half.flush().await
    }

    /// Sends what there is where it has become much.
    pub(super) async fn relieve(&mut self) -> io::Result<()> {
        if self.buffer.len() < OUTPUT_MAX { Ok(()) } else { self.flush().await }
    }

    /// Ends the connection in order.
    pub(super) async fn close(&mut self) {
        let _ = self.half.shutdown().await;
    }
}
