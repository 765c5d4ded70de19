//! Who names the replicas of a fleet.

/// Who names replicas; where two describe the same server, the first of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicaSource {
    /// An operator, by the route; forgotten at the end of the process.
    Route,
    /// `[[replicas]]`.
    Config,
    /// The file of `discovery.file`.
    File,
    /// `discovery.dns` or `discovery.srv`.
    Dns,
}

impl ReplicaSource {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Route => "route",
            Self::File => "file",
            Self::Dns => "dns",
        }
    }
}
