//! Which process listens on a port, where the system says so.

use std::fmt;
use std::net::SocketAddr;

use gateway::ports::PortError;

/// A process that listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortHolder {
    /// Its number.
    pub(crate) process: i32,
    /// Its program's name.
    pub(crate) name: String,
}

impl PortHolder {
    /// Whether it is a server of ours.
    pub(crate) fn is_relserve(&self) -> bool {
        self.name == "relserve"
    }

    /// Who listens on an address, or on all addresses of its port; `None` where that cannot be known: other
    /// users' processes keep it to themselves.
    #[cfg(target_os = "linux")]
    pub(crate) fn of(address: SocketAddr) -> Option<Self> {
        use procfs::net::{TcpNetEntry, TcpState, tcp, tcp6};
        use procfs::process::{FDTarget, all_processes};

        let is_met = |entry: &TcpNetEntry| {
            let (own, other) = (address, entry.local_address);
            let is_same = own.ip() == other.ip() || own.ip().is_unspecified() || other.ip().is_unspecified();
            entry.state == TcpState::Listen && own.port() == other.port() && is_same
        };
        let tables = [tcp(), tcp6()].into_iter().flatten().flatten();
        let sockets: Vec<u64> = tables.filter(is_met).map(|entry| entry.inode).collect();
        all_processes().ok()?.flatten().find_map(|process| {
            let mut files = process.fd().ok()?.flatten();
            let holds =
                files.any(|file| matches!(file.target, FDTarget::Socket(inode) if sockets.contains(&inode)));
            let stat = holds.then(|| process.stat().ok()).flatten()?;
            Some(Self { process: process.pid, name: stat.comm })
        })
    }

    /// Nobody: this system does not say.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of(_address: SocketAddr) -> Option<Self> {
        None
    }
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}, {}", self.process, self.name)
    }
}

/// What is wrong with a port, and who has it.
pub(crate) fn explained(error: &PortError) -> String {
    match PortHolder::of(error.address) {
        Some(holder) if error.cause.kind() == std::io::ErrorKind::AddrInUse => {
            format!("{error} ({holder}, has it)")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_this_process_is_found_to_be_its_own() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let holder = PortHolder::of(address).expect("somebody listens");
        assert_eq!(u32::try_from(holder.process), Ok(std::process::id()));
        drop(listener);
        assert_eq!(PortHolder::of(address), None);
    }
}
