//! A connection that asks one request after another.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One that stays open.
pub(super) struct Connection {
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(server: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, reply: Vec::new() })
    }

    /// Sends a request and reads its reply, which must have a cell's value.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<(), Error> {
        self.stream.write_all(request).await?;
        self.read().await
    }

    /// The same in pieces, each when `pace` says.
    pub(super) async fn ask_slowly<F: Future>(
        &mut self,
        pieces: &[&[u8]],
        pace: impl Fn() -> F,
    ) -> Result<(), Error> {
        for piece in pieces {
            self.stream.write_all(piece).await?;
            pace().await;
        }
        self.read().await
    }

    /// The last reply, its head included.
    pub(super) fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// Whether the other side has not closed it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    async fn read(&mut self) -> Result<(), Error> {
        self.reply.clear();
        loop {
            if self.stream.read_buf(&mut self.reply).await? == 0 {
                return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            let Some((body, length)) = declared(&self.reply) else { continue };
            if self.reply.len() < body + length {
                continue;
            }
            let is_answer = self.reply.starts_with(b"HTTP/1.1 200")
                && self.reply[body..].windows(8).any(|part| part == b"\"value\":");
            if is_answer {
                return Ok(());
            }
            return Err(Error::other(format!("no answer: {}", String::from_utf8_lossy(&self.reply))));
        }
    }
}

/// Where a reply's body begins and how long it is, once its head is there.
fn declared(reply: &[u8]) -> Option<(usize, usize)> {
    let head = reply.windows(4).position(|four| four == b"\r\n\r\n")?;
    let lines = std::str::from_utf8(&reply[..head]).ok()?.lines();
    let length = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Some((head + 4, length.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_says_where_its_body_is() {
        assert_eq!(declared(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n"), None);
        assert_eq!(declared(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nabc"), Some((39, 12)));
        assert_eq!(declared(b"HTTP/1.1 204 No Content\r\n\r\n"), Some((27, 0)));
    }
}
