//! The addresses that a server listens on, bound before anything else is done: a port in use is said before
//! a model is read.
//!
//! A port is bound first and listened on when the server is ready. A client that comes in between is refused
//! and does not hang. Of two servers that bind at the same moment the later one fails when it listens.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Config;

/// Connections that wait in the kernel until they are taken.
const BACKLOG: i32 = 1_024;

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// The API and the page.
    Http,
    /// Health and metrics alone.
    Health,
    /// The Postgres protocol.
    Sql,
}

impl ListenerKind {
    /// What it speaks, in a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Health => "health",
            Self::Sql => "SQL",
        }
    }

    /// What names its address: a flag of `relserve serve`, and a key of the configuration.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Http => "`--listen ADDRESS` or server.listen",
            Self::Health => "server.health_listen",
            Self::Sql => "`--sql ADDRESS` or sql.listen",
        }
    }
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for {}: {}; {} names another",
    .listener.name(), Reason(.cause), .listener.setting()
)]
pub struct PortError {
    /// What it is for.
    pub listener: ListenerKind,
    /// The address.
    pub address: SocketAddr,
    /// What the system said.
    pub cause: io::Error,
}

/// A system's error in the words of who starts a server.
struct Reason<'a>(&'a io::Error);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind() {
            ErrorKind::AddrInUse => f.write_str("the port is in use"),
            ErrorKind::AddrNotAvailable => f.write_str("this machine has no such address"),
            ErrorKind::PermissionDenied => f.write_str("a port below 1024 needs the right to use it"),
            _ => write!(f, "{}", self.0),
        }
    }
}

/// An address that is this process's, and on which nobody listens yet.
#[derive(Debug)]
pub struct BoundPort {
    listener: ListenerKind,
    /// The address, with the port that the system chose where 0 was asked for.
    address: SocketAddr,
    socket: Socket,
}

impl BoundPort {
    /// Binds an address.
    ///
    /// # Errors
    /// Where another process listens there, or this one may not.
    pub fn bind(listener: ListenerKind, address: SocketAddr) -> Result<Self, PortError> {
        let failed = |cause| PortError { listener, address, cause };
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP));
        let socket = socket.map_err(failed)?;
        // Connections of a server that has just ended do not keep the port; one that listens does.
        #[cfg(unix)]
        socket.set_reuse_address(true).map_err(failed)?;
        socket.bind(&address.into()).map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?.as_socket();
        Ok(Self { listener, address: bound.unwrap_or(address), socket })
    }

    /// The address, with the port that the system chose where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens; accepting does not block.
    ///
    /// # Errors
    /// Where another process has begun to listen there meanwhile.
    pub fn listen(self) -> Result<TcpListener, PortError> {
        let Self { listener, address, socket } = self;
        let failed = |cause| PortError { listener, address, cause };
        socket.listen(BACKLOG).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(socket.into())
    }
}

/// The addresses of a server, bound.
#[derive(Debug)]
pub struct Ports {
    /// The API's and the page's.
    pub http: BoundPort,
    /// That of health alone, where the configuration names one.
    pub health: Option<BoundPort>,
    /// That of the Postgres protocol, where the configuration names one.
    pub sql: Option<BoundPort>,
}

impl Ports {
    /// Binds the addresses of a configuration.
    ///
    /// # Errors
    /// The first that cannot be bound.
    pub fn bind(config: &Config) -> Result<Self, PortError> {
        let http = BoundPort::bind(ListenerKind::Http, config.server.listen)?;
        let health = config.server.health_listen;
        let health = health.map(|address| BoundPort::bind(ListenerKind::Health, address)).transpose()?;
        let sql = config.sql.listen.map(|address| BoundPort::bind(ListenerKind::Sql, address)).transpose()?;
        Ok(Self { http, health, sql })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn a_bound_port_refuses_clients_until_it_is_listened_on() {
        let port = BoundPort::bind(ListenerKind::Http, loopback()).expect("a free port");
        let address = port.address();
        assert!(address.port() > 0, "it is the one that the system chose");
        let refused = std::net::TcpStream::connect(address).expect_err("nobody listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let _listener = port.listen().expect("it is still this process's");
        std::net::TcpStream::connect(address).expect("the kernel takes the connection");
    }

    #[test]
    fn a_port_that_is_in_use_is_named_with_what_names_another() {
        let taken = TcpListener::bind(loopback()).expect("a free port");
        let address = taken.local_addr().expect("it is bound");
        let error = BoundPort::bind(ListenerKind::Sql, address).expect_err("it is taken").to_string();
        let other = "`--sql ADDRESS` or sql.listen names another";
        assert_eq!(error, format!("cannot listen on {address} for SQL: the port is in use; {other}"));
    }
}
