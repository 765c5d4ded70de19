//! The `relserve` command as a user starts it, one file per promise. One binary, because linking is what
//! takes long.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(unreachable_pub, reason = "a test binary exports nothing; `pub` is for its own modules")]

mod answers;
mod api;
#[path = "../../../gateway/tests/gateway/common/mod.rs"]
#[expect(dead_code, reason = "the gateway's tests use the rest")]
mod common;
mod configuration;
mod document;
mod examples;
mod jobs;
mod kills;
mod program;
mod python_client;
mod simulate;
mod sources;
mod sql_clients;
#[path = "../../../store/tests/support/mod.rs"]
#[expect(dead_code, reason = "the gateway's tests use the rest")]
mod support;
mod web;
