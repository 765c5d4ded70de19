//! TLS: the request for it before a connection's first message.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Asks for TLS, in place of a protocol's version.
const SSL_REQUEST: u32 = 80_877_103;
/// Asks for encryption by GSSAPI, which is not offered.
const GSS_REQUEST: u32 = 80_877_104;
/// The first byte of a TLS handshake: a client that does not ask first.
const HANDSHAKE: u8 = 0x16;
/// The protocol's name within TLS; clients that do not ask first must name it.
const PROTOCOL: &[u8] = b"postgresql";

/// What encrypts connections.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_tuple("Tls").finish()
    }
}

impl Tls {
    /// TLS by a configuration with a certificate; the protocol's name is put in.
    pub fn new(mut config: ServerConfig) -> Self {
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Self(TlsAcceptor::from(Arc::new(config)))
    }
}

/// A connection, encrypted or not.
#[derive(Debug)]
pub(super) enum Channel {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Channel {
    /// Answers requests for encryption until the first message that is none; its length and code are
    /// returned.
    ///
    /// Nothing is read beyond a request: what a stranger put before the handshake is never taken for the
    /// client's.
    pub(super) async fn open(mut socket: TcpStream, tls: Option<&Tls>) -> io::Result<(Self, [u8; 8])> {
        let mut first = [0; 1];
        if socket.peek(&mut first).await? == 1 && first[0] == HANDSHAKE {
            let mut channel = Self::encrypt(socket, tls).await?;
            let Self::Encrypted(stream) = &channel else { return Err(io::ErrorKind::InvalidData.into()) };
            if stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let head = channel.head().await?;
            return Ok((channel, head));
        }
        // Each of the two requests may come once, in either order.
        for _ in 0..2 {
            let mut head = [0; 8];
            socket.read_exact(&mut head).await?;
            match (u32::from_be_bytes([head[4], head[5], head[6], head[7]]), tls) {
                (SSL_REQUEST, Some(_)) => {
                    socket.write_all(b"S").await?;
                    let mut channel = Self::encrypt(socket, tls).await?;
                    let head = channel.head().await?;
                    return Ok((channel, head));
                }
                (SSL_REQUEST | GSS_REQUEST, _) => socket.write_all(b"N").await?,
                _ => return Ok((Self::Plain(socket), head)),
            }
        }
        let mut channel = Self::Plain(socket);
        let head = channel.head().await?;
        Ok((channel, head))
    }

    async fn encrypt(socket: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        let Some(Tls(acceptor)) = tls else { return Err(io::ErrorKind::InvalidData.into()) };
        Ok(Self::Encrypted(Box::new(acceptor.accept(socket).await?)))
    }

    async fn head(&mut self) -> io::Result<[u8; 8]> {
        let mut head = [0; 8];
        self.read_exact(&mut head).await?;
        Ok(head)
    }

    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Encrypted(_))
    }
}

impl AsyncRead for Channel {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Channel {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
