//! The `relserve` command: the server, and what is done without one.
//!
//! [`cli`] reads the command line and calls one module per command: those in `commands`, [`jobs`] for tables,
//! [`bench`] and [`eval`] to measure, [`reorder`] and [`simulate`] to plan, `backup` for archives. All of them load models by
//! `serving::load`, read tables by [`input`] and speak to people by `terminal`; the server itself is
//! `gateway::app`.

mod backup;
pub mod bench;
pub mod cli;
mod commands;
pub mod eval;
mod http;
pub mod input;
pub mod jobs;
mod models;
pub mod reorder;
pub mod simulate;
pub mod tables;
mod terminal;
