//! What answers at once: a thread on a socket, so that what sockets and the client take can be told from the rest.

use std::io::{Error, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread::JoinHandle;

/// A thread that takes one connection and gives whatever comes on it the same reply, until the other side closes it.
pub(super) struct BareServer {
    pub(super) address: SocketAddr,
    thread: JoinHandle<Result<(), Error>>,
}

impl BareServer {
    pub(super) fn start(reply: Vec<u8>) -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            // A request is smaller than this and sent whole: it is read whole.
            let mut request = [0; 4_096];
            while stream.read(&mut request)? > 0 {
                stream.write_all(&reply)?;
            }
            Ok(())
        });
        Ok(Self { address, thread })
    }

    /// Waits for the thread, whose connection must be closed.
    pub(super) fn end(self) -> Result<(), Error> {
        self.thread.join().map_err(|_| Error::other("the bare socket's thread panicked"))?
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::Connection;
    use super::*;

    #[tokio::test]
    async fn a_bare_socket_gives_each_request_the_same_reply() {
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"value\":1}";
        let bare = BareServer::start(reply.to_vec()).expect("a socket");
        let mut connection = Connection::open(bare.address).await.expect("a connection");
        for _ in 0..3 {
            connection.ask(b"anything").await.expect("an answer");
            assert_eq!(connection.reply(), reply);
        }
        drop(connection);
        bare.end().expect("an end in order");
    }
}
