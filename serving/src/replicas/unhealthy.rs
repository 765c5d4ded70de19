//! What a look at a server's health found, where that is nothing good.

/// Why a server is not well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhealthy {
    /// In words.
    pub reason: String,
    /// Whether it is certain that it answers no row: nobody is there, or somebody else.
    pub is_gone: bool,
}
