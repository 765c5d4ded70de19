//! A TCP proxy on loopback whose connections can be delayed, cut, reset, or robbed of their replies. It must not
//! know what they carry.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Bytes that are moved at a time.
const CHUNK: usize = 16 * 1024;

/// What happens to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// They pass.
    Open,
    /// Each piece waits as long.
    Delayed(Duration),
    /// They stay where they are until this is over. New connections are taken, and get nowhere.
    Cut,
    /// Connections are reset, and new ones too.
    Reset,
    /// Replies are thrown away. What lost some is reset when this is over.
    RepliesLost,
}

/// A proxy in front of one address. Its connections end with it.
pub(super) struct Link {
    /// The port to connect to.
    pub(super) port: u16,
    state: watch::Sender<LinkState>,
    listening: AbortHandle,
}

impl Link {
    /// A proxy in front of a port of loopback.
    pub(super) async fn to(upstream: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (state, seen) = watch::channel(LinkState::Open);
        let listening = tokio::spawn(listen(listener, upstream, seen)).abort_handle();
        Ok(Self { port, state, listening })
    }

    /// What happens from now on.
    pub(super) fn set(&self, state: LinkState) {
        self.state.send_replace(state);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Takes connections; those that are open are dropped with this future.
async fn listen(listener: TcpListener, upstream: u16, state: watch::Receiver<LinkState>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Out of files: those of connections that end are free again.
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                connections.spawn(connect(client, upstream, state.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection, from its first byte to its end.
async fn connect(
    mut client: TcpStream,
    upstream: u16,
    mut state: watch::Receiver<LinkState>,
) -> io::Result<()> {
    let known = state.wait_for(|state| *state != LinkState::Cut).await.map(|state| *state);
    if !matches!(known, Ok(state) if state != LinkState::Reset) {
        return client.set_zero_linger();
    }
    let mut server = TcpStream::connect(("127.0.0.1", upstream)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let has_lost = AtomicBool::new(false);
    let is_reset = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let mut watched = state.clone();
        tokio::select! {
            // Where one side is gone the other is told: half of a connection would keep its transaction, and its locks.
            _ = async { tokio::try_join!(
                move_bytes(from_client, to_server, state.clone(), None),
                move_bytes(from_server, to_client, state.clone(), Some(&has_lost)),
            ) } => false,
            _ = watched.wait_for(|state| is_reset(*state, &has_lost)) => true,
        }
    };
    if is_reset {
        client.set_zero_linger()?;
        server.set_zero_linger()?;
    }
    Ok(())
}

fn is_reset(state: LinkState, has_lost: &AtomicBool) -> bool {
    state == LinkState::Reset || has_lost.load(Ordering::Relaxed) && state != LinkState::RepliesLost
}

/// Moves bytes one way until their end; `lost` is set where replies are thrown away.
async fn move_bytes(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut state: watch::Receiver<LinkState>,
    lost: Option<&AtomicBool>,
) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        // What is borrowed of the channel is let go before anything is waited for.
        let seen = *state.borrow();
        if let LinkState::Delayed(span) = seen {
            tokio::time::sleep(span).await;
        }
        let now = match state.wait_for(|state| *state != LinkState::Cut).await {
            Ok(state) => *state,
            Err(_) => return Ok(()),
        };
        match (now, lost) {
            (LinkState::RepliesLost, Some(lost)) => lost.store(true, Ordering::Relaxed),
            _ => to.write_all(&bytes[..count]).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends each piece back, and counts the bytes that it got.
    async fn echo() -> (u16, watch::Receiver<usize>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (count, seen) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let count = count.clone();
                tokio::spawn(async move {
                    let mut bytes = [0; 64];
                    while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                        count.send_modify(|count| *count += length);
                        if stream.write_all(&bytes[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        (port, seen)
    }

    async fn says(stream: &mut TcpStream, word: &[u8]) -> io::Result<Vec<u8>> {
        stream.write_all(word).await?;
        let mut heard = vec![0; word.len()];
        stream.read_exact(&mut heard).await?;
        Ok(heard)
    }

    #[tokio::test]
    async fn what_is_cut_comes_when_the_link_is_open_again_and_what_is_reset_does_not() {
        let (port, mut got) = echo().await;
        let link = Link::to(port).await.unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", link.port)).await.unwrap();
        assert_eq!(says(&mut stream, b"one").await.unwrap(), b"one");
        link.set(LinkState::Cut);
        stream.write_all(b"two").await.unwrap();
        let mut other = TcpStream::connect(("127.0.0.1", link.port)).await.unwrap();
        other.write_all(b"four").await.unwrap();
        assert_eq!(*got.borrow_and_update(), 3, "nothing passed");
        link.set(LinkState::Delayed(Duration::from_millis(1)));
        let mut heard = [0; 3];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"two");
        link.set(LinkState::Reset);
        assert_eq!(says(&mut stream, b"six").await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let mut refused = TcpStream::connect(("127.0.0.1", link.port)).await.unwrap();
        assert!(says(&mut refused, b"six").await.is_err());
        link.set(LinkState::Open);
        let mut again = TcpStream::connect(("127.0.0.1", link.port)).await.unwrap();
        assert_eq!(says(&mut again, b"seven").await.unwrap(), b"seven");
    }

    #[tokio::test]
    async fn a_server_hears_that_its_client_was_reset() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let link = Link::to(listener.local_addr().unwrap().port()).await.unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", link.port)).await.unwrap();
        client.write_all(b"a").await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut heard = [0; 2];
        assert_eq!(server.read(&mut heard).await.unwrap(), 1);
        client.set_zero_linger().unwrap();
        drop(client);
        assert!(!matches!(server.read(&mut heard).await, Ok(1..)), "nothing was said");
    }

    #[tokio::test]
    async fn where_replies_are_lost_the_server_hears_and_the_client_does_not() {
        let (port, mut got) = echo().await;
        let link = Link::to(port).await.unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", link.port)).await.unwrap();
        assert_eq!(says(&mut stream, b"one").await.unwrap(), b"one");
        link.set(LinkState::RepliesLost);
        let heard = async { says(&mut stream, b"commit").await };
        let passed = async {
            got.wait_for(|bytes| *bytes == 9).await.unwrap();
            // The reply is on its way to nowhere; whether it was lost before the end of this, the next says.
            let mut probe = TcpStream::connect(("127.0.0.1", link.port)).await.unwrap();
            probe.write_all(b"x").await.unwrap();
            got.wait_for(|bytes| *bytes == 10).await.unwrap();
            link.set(LinkState::Reset);
        };
        let (heard, ()) = tokio::join!(heard, passed);
        assert!(heard.is_err(), "{heard:?}");
    }
}
