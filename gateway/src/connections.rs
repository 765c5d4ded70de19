//! Open connections of the API. Where nearly all places are taken, connections that have shown no valid key and wait for
//! no answer are closed, the oldest first, so that whoever has a key finds a place.
//!
//! The HTTP library takes connections while there are places, and closes none for want of them. A connection that may
//! be closed is known here by a second handle on its socket; their number is bounded. Must not know requests.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use actix_tls::accept::rustls_0_23::TlsStream;

/// One place of so many is kept free.
const PLACES_PER_FREE: usize = 10;
/// Fewest connections that may be closed.
const CLOSABLE_MIN: usize = 16;

/// How many connections that may be closed are known where there are so many places: as many handles are open beside
/// the connections' own.
pub fn closable_max(places: usize) -> usize {
    (places / PLACES_PER_FREE).max(CLOSABLE_MIN).min(places)
}

/// A connection that has shown no valid key.
#[derive(Debug)]
struct Stranger {
    socket: TcpStream,
    /// Requests that are being answered.
    active: usize,
}

#[derive(Debug, Default)]
struct OpenConnections {
    count: usize,
    last: u64,
    /// Oldest first.
    strangers: BTreeMap<u64, Stranger>,
}

/// The connections of all workers: one is given to a worker that has a place for it.
#[derive(Debug)]
pub(crate) struct Connections {
    places: usize,
    state: Mutex<OpenConnections>,
}

impl Connections {
    /// No connections; the workers together take so many.
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, OpenConnections> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A connection as the HTTP library has taken it, to be kept with that.
    pub(crate) fn take(self: &Arc<Self>, stream: &dyn Any) -> HttpConnection {
        let tcp = stream.downcast_ref::<tokio::net::TcpStream>();
        let tls = stream.downcast_ref::<TlsStream<tokio::net::TcpStream>>();
        // Whoever may use the Unix socket is this process's user or of its group, and is left alone.
        let socket = tcp.or_else(|| tls.map(|tls| tls.get_ref().0));
        self.take_socket(socket.map(AsFd::as_fd))
    }

    /// Near the last place the oldest goes that may. Without a socket a connection is never closed.
    fn take_socket(self: &Arc<Self>, socket: Option<BorrowedFd<'_>>) -> HttpConnection {
        let mut state = self.state();
        state.count += 1;
        state.last += 1;
        if state.count > self.places - (self.places / PLACES_PER_FREE).max(1) {
            let idle = state.strangers.iter().find(|(_, stranger)| stranger.active == 0);
            let oldest = idle.map(|(number, _)| *number);
            if let Some(stranger) = oldest.and_then(|number| state.strangers.remove(&number)) {
                // Its worker reads the end, as if the client had ended it. An error: the client has.
                let _ = stranger.socket.shutdown(Shutdown::Read);
            }
        }
        let number = state.last;
        if state.strangers.len() < closable_max(self.places)
            && let Some(handle) = socket.and_then(|socket| socket.try_clone_to_owned().ok())
        {
            state.strangers.insert(number, Stranger { socket: handle.into(), active: 0 });
        }
        HttpConnection { connections: Arc::clone(self), number }
    }
}

/// A connection, for as long as it is open.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    connections: Arc<Connections>,
    number: u64,
}

impl HttpConnection {
    /// A request has shown a valid key: the connection stays.
    pub(crate) fn has_key(&self) {
        self.connections.state().strangers.remove(&self.number);
    }

    /// A request begins; it is answered once what is given back is dropped.
    pub(crate) fn begin(&self) -> Option<ActiveRequest> {
        self.connections.state().strangers.get_mut(&self.number)?.active += 1;
        Some(ActiveRequest { connections: Arc::clone(&self.connections), number: self.number })
    }
}

impl Drop for HttpConnection {
    fn drop(&mut self) {
        let mut state = self.connections.state();
        state.count -= 1;
        state.strangers.remove(&self.number);
    }
}

/// A request that is being answered: its connection is not idle.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if let Some(stranger) = self.connections.state().strangers.get_mut(&self.number) {
            stranger.active -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    /// A connection that was taken, with both of its ends.
    struct Taken {
        connection: HttpConnection,
        server: TcpStream,
        _client: TcpStream,
    }

    fn take(connections: &Arc<Connections>, listener: &TcpListener) -> Taken {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        Taken { connection: connections.take_socket(Some(server.as_fd())), server, _client: client }
    }

    /// The numbers of those that were closed.
    fn closed(taken: &[Taken]) -> Vec<usize> {
        let is_closed = |taken: &Taken| (&taken.server).read(&mut [0]).is_ok_and(|count| count == 0);
        (0..taken.len()).filter(|number| is_closed(&taken[*number])).collect()
    }

    #[test]
    fn near_the_last_place_the_oldest_goes_that_shows_no_key_and_waits_for_nothing() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connections = Connections::new(10);
        let mut all: Vec<Taken> = (0..9).map(|_| take(&connections, &listener)).collect();
        all[0].connection.has_key();
        let active = all[1].connection.begin().unwrap();
        assert_eq!(closed(&all), [0; 0], "a place is free");
        all.push(take(&connections, &listener));
        assert_eq!(closed(&all), [2]);
        drop(active);
        all.push(take(&connections, &listener));
        assert_eq!(closed(&all), [1, 2]);
        let of_unix_socket = connections.take_socket(None);
        assert_eq!(closed(&all), [1, 2, 3]);
        assert!(of_unix_socket.begin().is_none());
        drop((all, of_unix_socket));
        let state = connections.state();
        assert_eq!((state.count, state.strangers.len()), (0, 0));
    }

    #[test]
    fn no_more_sockets_are_held_twice_than_may_be_closed() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connections = Connections::new(1_000);
        let all: Vec<Taken> = (0..120).map(|_| take(&connections, &listener)).collect();
        assert_eq!(closable_max(1_000), 100);
        assert_eq!(connections.state().strangers.len(), 100);
        assert_eq!((closable_max(4), closable_max(20_000)), (4, 2_000));
        drop(all);
    }
}
