//! Whoever is connected beside those that are measured: idle connections, and clients that send little by little.

use std::io::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::connection::Connection;

/// What a slow client takes for a request: its head must come within ten seconds.
const SLOW: Duration = Duration::from_secs(9);

/// Connections that are open beside others.
pub(super) struct Crowd {
    idle: Vec<Connection>,
    slow: JoinSet<()>,
    answered: Arc<AtomicU64>,
}

impl Crowd {
    /// Opens so many idle connections, each of which gets an answer first, and so many slow ones, whose requests come in
    /// so many pieces.
    pub(super) async fn gather(
        server: SocketAddr,
        (idle, slow, pieces): (u32, u32, u32),
        request: &[u8],
    ) -> Result<Self, Error> {
        let mut crowd = Self { idle: Vec::new(), slow: JoinSet::new(), answered: Arc::default() };
        for _ in 0..idle {
            let mut connection = Connection::open(server).await?;
            connection.ask(request).await?;
            crowd.idle.push(connection);
        }
        for _ in 0..slow {
            crowd.slow.spawn(dawdle(server, (request.to_vec(), pieces), Arc::clone(&crowd.answered)));
        }
        Ok(crowd)
    }

    /// Closes all: idle connections that were open until now, and slow requests that were answered.
    pub(super) async fn end(mut self) -> (u32, u64) {
        self.slow.shutdown().await;
        let open = self.idle.iter().filter(|connection| connection.is_open()).count();
        (u32::try_from(open).unwrap_or(u32::MAX), self.answered.load(Ordering::Relaxed))
    }
}

/// Sends a request again and again, in so many pieces; connects again where the server has had enough.
async fn dawdle(server: SocketAddr, (request, pieces): (Vec<u8>, u32), answered: Arc<AtomicU64>) {
    let pieces: Vec<&[u8]> = request.chunks(request.len().div_ceil(pieces as usize)).collect();
    let pace = SLOW / pieces.len() as u32;
    loop {
        let Ok(mut connection) = Connection::open(server).await else {
            tokio::time::sleep(pace).await;
            continue;
        };
        while connection.ask_slowly(&pieces, || tokio::time::sleep(pace)).await.is_ok() {
            answered.fetch_add(1, Ordering::Relaxed);
        }
        // One that refuses at once is not asked again at once.
        tokio::time::sleep(pace).await;
    }
}
