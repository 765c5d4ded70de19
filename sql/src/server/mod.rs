//! The Postgres protocol: connections of psql, BI tools and drivers.
//!
//! [`serve`] accepts connections; who may connect, and with which tables, is for [`Accounts`] to say.
//! Messages and value formats are pgwire's and arrow-pg's, `pg_catalog` is datafusion-pg-catalog's; the
//! handlers are our own, because theirs hold all of a result before its first row goes out, and stop
//! listening for cancellation once rows flow.
//!
//! A statement runs inside the task of its connection ([`connection`]) and is dropped when its client cancels
//! it or goes away, when it takes too long, or when the server stops: its queries end with it.

mod accounts;
mod answer;
mod backend;
mod cancel;
mod catalog;
mod catalog_queries;
mod command;
mod connection;
mod copy;
mod cursor;
mod error;
mod extended;
mod frontend;
mod names;
mod prepared;
mod rows;
mod scram;
mod settings;
mod split;
mod startup;
mod tls;
mod transport;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

pub use accounts::{AccountError, Accounts, Login};
pub use scram::Verifier;
pub use tls::Tls;

/// What a connection, and all of them together, may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections at a time.
    pub connections_max: usize,
    /// Bytes of a message, parameters included.
    pub message_bytes_max: usize,
    /// Bytes of a statement's text.
    pub statement_bytes_max: usize,
    /// Prepared statements of a connection.
    pub statements_max: usize,
    /// Portals of a connection.
    pub portals_max: usize,
    /// Cursors of a connection, and its savepoints.
    pub cursors_max: usize,
    /// Whether connections in clear text are refused, before anything of the client is read but its user's name.
    pub requires_tls: bool,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections_max: 100,
            message_bytes_max: 16 * 1024 * 1024,
            statement_bytes_max: 1024 * 1024,
            statements_max: 1_000,
            portals_max: 100,
            cursors_max: 100,
            requires_tls: false,
        }
    }
}

/// Connections that have not yet said what they want, beyond those that are open.
const HANDSHAKES_MAX: usize = 64;

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What all connections share.
#[derive(Debug)]
struct Server {
    accounts: Arc<dyn Accounts>,
    limits: ConnectionLimits,
    tls: Option<Tls>,
    cancels: Arc<cancel::Cancels>,
    connections: Arc<Semaphore>,
    /// Makes salts for users who are not there.
    secret: [u8; 32],
}

/// Serves connections until `shutdown` becomes true; what runs then is cancelled, and its clients are told.
///
/// # Errors
///
/// Where the system gives no random bytes. A connection that cannot be accepted is not an error of the
/// server.
pub async fn serve(
    listener: TcpListener,
    accounts: Arc<dyn Accounts>,
    limits: ConnectionLimits,
    tls: Option<Tls>,
    mut shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut secret = [0; 32];
    scram::fill(&mut secret)?;
    let server = Arc::new(Server {
        accounts,
        limits,
        tls,
        cancels: Arc::default(),
        connections: Arc::new(Semaphore::new(limits.connections_max)),
        secret,
    });
    // Beyond this many, connections wait in the system's queue.
    let sockets = Arc::new(Semaphore::new(limits.connections_max.saturating_add(HANDSHAKES_MAX)));
    let mut connections = JoinSet::new();
    let until = shutdown.clone();
    let accepting = async {
        loop {
            let Ok(permit) = Arc::clone(&sockets).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((socket, peer)) => {
                    let connection = connection::serve(Arc::clone(&server), socket, peer, until.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                // Out of files, or a client that went away already: others may fare better, a moment later.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
            while connections.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = shutdown.wait_for(|is_stopped| *is_stopped) => {}
    }
    // No more are accepted; those that are open see the same sign and end by themselves.
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}
