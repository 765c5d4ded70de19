//! The addresses that a server listens on, bound before anything else is done: a port in use is said before
//! a model is read.
//!
//! A port is bound first and listened on when the server is ready. A client that comes in between is refused
//! and does not hang. Of two servers that bind at the same moment the later one fails when it listens.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

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

    /// Has the kernel drop clients that take no bytes for `span`: connections inherit it.
    pub(crate) fn give_up_after(&self, span: Duration) {
        #[cfg(target_os = "linux")]
        if let Err(error) = self.socket.set_tcp_user_timeout(Some(span)) {
            tracing::debug!(%error, "no write timeout on connections");
        }
        #[cfg(not(target_os = "linux"))]
        let _ = span;
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

/// A path that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {} for HTTP: {cause}; server.unix_socket names another", path.display())]
pub struct PathError {
    path: PathBuf,
    cause: io::Error,
}

/// A path that is this process's, and on which nobody listens yet. It goes when this is dropped.
#[derive(Debug)]
pub struct BoundPath {
    path: PathBuf,
    socket: Socket,
}

impl BoundPath {
    /// Binds a path, over a socket that a process which is gone has left there.
    ///
    /// # Errors
    /// Where another process listens there, a file lies there, or this process may not.
    pub fn bind(path: &Path) -> Result<Self, PathError> {
        /// This process's user and group may connect.
        const MODE: u32 = 0o660;
        let failed = |cause| PathError { path: path.to_owned(), cause };
        if path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
            && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        {
            std::fs::remove_file(path).map_err(failed)?;
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
        socket.bind(&SockAddr::unix(path).map_err(failed)?).map_err(failed)?;
        let bound = Self { path: path.to_owned(), socket };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE)).map_err(failed)?;
        Ok(bound)
    }

    /// Listens; accepting does not block. The path goes with what is given back beside the listener.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen(self) -> Result<(UnixListener, Self), PathError> {
        let listen = || {
            self.socket.listen(BACKLOG)?;
            self.socket.set_nonblocking(true)?;
            self.socket.try_clone()
        };
        let listening = listen().map_err(|cause| PathError { path: self.path.clone(), cause })?;
        Ok((listening.into(), self))
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the socket's path stays");
        }
    }
}

/// What cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// An address.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A path.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// The addresses of a server, bound.
#[derive(Debug)]
pub struct Ports {
    /// The API's and the page's.
    pub http: BoundPort,
    /// A path on which the API is answered too, where the configuration names one.
    pub unix: Option<BoundPath>,
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
    pub fn bind(config: &Config) -> Result<Self, BindError> {
        let http = BoundPort::bind(ListenerKind::Http, config.server.listen)?;
        let health = config.server.health_listen;
        let health = health.map(|address| BoundPort::bind(ListenerKind::Health, address)).transpose()?;
        let sql = config.sql.listen.map(|address| BoundPort::bind(ListenerKind::Sql, address)).transpose()?;
        let unix = config.server.unix_socket.as_deref().map(BoundPath::bind).transpose()?;
        Ok(Self { http, unix, health, sql })
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
    fn connections_inherit_how_long_a_silent_client_is_borne() {
        let port = BoundPort::bind(ListenerKind::Http, loopback()).expect("a free port");
        port.give_up_after(Duration::from_millis(1_234));
        let address = port.address();
        let listener = port.listen().expect("it is free");
        let _client = std::net::TcpStream::connect(address).expect("the kernel takes the connection");
        let server = loop {
            match listener.accept() {
                Ok((server, _)) => break server,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        };
        #[cfg(target_os = "linux")]
        {
            let found = socket2::SockRef::from(&server).tcp_user_timeout().expect("it is set");
            assert_eq!(found, Some(Duration::from_millis(1_234)));
        }
        drop(server);
    }

    #[test]
    fn a_path_is_taken_over_from_who_is_gone_and_from_nobody_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("relserve.sock");
        let bind = || BoundPath::bind(&path).map_err(|error| error.to_string());
        // A process that was killed leaves its path.
        drop(UnixListener::bind(&path).expect("a free path"));
        let (_listener, bound) = bind().expect("nobody listens").listen().expect("it does");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        UnixStream::connect(&path).expect("somebody listens");
        let taken = bind().expect_err("it is taken");
        assert!(taken.contains("server.unix_socket names another"), "{taken}");
        drop(bound);
        assert!(!path.exists(), "it goes with its server");
        std::fs::write(&path, "a file").expect("it is written");
        bind().expect_err("a file is nobody's socket");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "a file");
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
