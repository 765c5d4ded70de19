//! The gateway over real sockets, one file per promise. One binary, because linking is what takes long.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;
mod relqueries;
