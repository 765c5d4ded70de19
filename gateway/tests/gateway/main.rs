//! The gateway over real sockets, one file per promise. One binary, because linking is what takes long.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(unreachable_pub, reason = "a test binary exports nothing; `pub` is for its own modules")]

mod bad_input;
mod cells;
mod checkpoint;
mod common;
mod disconnect;
mod operation;
mod overload;
mod python_client;
mod refusals;
mod relqueries;
mod shutdown;
mod streams;
mod tenancy;
mod tickets;
