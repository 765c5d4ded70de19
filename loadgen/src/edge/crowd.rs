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

/// How long the first of their answers is waited for, and the pause between two looks.
const FIRST_MAX: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

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
        for client in 0..slow {
            let (request, answered) = (request.to_vec(), Arc::clone(&crowd.answered));
            let begins = begin_of(client, slow);
            crowd.slow.spawn(async move {
                tokio::time::sleep(begins).await;
                dawdle(server, (request, pieces), answered).await;
            });
        }
        if slow > 0 {
            // Until the last of them has begun.
            tokio::time::sleep(SLOW).await;
        }
        Ok(crowd)
    }

    /// Closes all: idle connections that were open until now, and slow requests that were answered. A load may be over
    /// before any slow request is whole: the first answer is waited for.
    pub(super) async fn end(mut self) -> (u32, u64) {
        let open = self.idle.iter().filter(|connection| connection.is_open()).count();
        if !self.slow.is_empty() {
            let first = async {
                while self.answered.load(Ordering::Relaxed) == 0 {
                    tokio::time::sleep(LOOK).await;
                }
            };
            // Where none comes, the report says so.
            let _ = tokio::time::timeout(FIRST_MAX, first).await;
        }
        self.slow.shutdown().await;
        (u32::try_from(open).unwrap_or(u32::MAX), self.answered.load(Ordering::Relaxed))
    }
}

/// When a slow client begins. Clients know nothing of each other: were all to begin at once, their last pieces would come
/// at once too, a thousand whole requests in the same millisecond.
fn begin_of(client: u32, clients: u32) -> Duration {
    SLOW * client / clients.max(1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_clients_begin_evenly_over_the_time_of_a_request() {
        let begins: Vec<Duration> = (0..4).map(|client| begin_of(client, 4)).collect();
        assert_eq!(begins, [0, 2_250, 4_500, 6_750].map(Duration::from_millis));
        assert_eq!(begin_of(0, 0), Duration::ZERO);
    }
}
