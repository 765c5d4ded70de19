//! A socket between a store and its Postgres that loses what it is told to, and tells neither.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

/// The name of Postgres' socket in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// What goes lost of a message of a client, on the one connection that has it; nothing passes there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostBytes {
    /// It does not arrive.
    Message,
    /// It arrives, and its answer does not.
    Answer,
}

/// What is lost next, and a part of the message.
type Next = Arc<Mutex<Option<(LostBytes, &'static str)>>>;

/// The socket, for as long as the test's runtime lives.
pub(crate) struct Wire {
    folder: tempfile::TempDir,
    next: Next,
}

impl Wire {
    /// A socket in front of the server of this address.
    pub(crate) fn to(url: &str) -> Self {
        let (_, server) = url.split_once("?host=").expect("a socket's folder");
        let server = PathBuf::from(server);
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(SOCKET)).expect("a socket");
        let wire = Self { folder, next: Next::default() };
        let next = Arc::clone(&wire.next);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(server.join(SOCKET)).await.expect("it runs");
                tokio::spawn(pass(client, server, Arc::clone(&next)));
            }
        });
        wire
    }

    /// The address of a database by way of it.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.folder.path().display())
    }

    /// From now on it waits for the message, to lose it.
    pub(crate) fn lose(&self, loss: LostBytes, part: &'static str) {
        *self.next.lock().expect("no panic") = Some((loss, part));
    }
}

/// Passes bytes both ways until one side is gone.
async fn pass(mut client: UnixStream, mut server: UnixStream, next: Next) {
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(count @ 1..) = read else { return };
                let message = &asked[..count];
                let lost = lost_of(&next, message);
                if lost != Some(LostBytes::Message) && server.write_all(message).await.is_err() {
                    return;
                }
                if lost.is_some() {
                    // Both sides stay as they are.
                    std::future::pending::<()>().await;
                }
            }
            read = server.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// What is to be lost of a message, once.
fn lost_of(next: &Next, message: &[u8]) -> Option<LostBytes> {
    let mut next = next.lock().expect("no panic");
    next.take_if(|(_, part)| message.windows(part.len()).any(|bytes| bytes == part.as_bytes()))
        .map(|(loss, _)| loss)
}
