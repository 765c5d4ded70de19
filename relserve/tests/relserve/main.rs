//! The `relserve` command as a user starts it, one file per promise. One binary, because linking is what
//! takes long.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(unreachable_pub, reason = "a test binary exports nothing; `pub` is for its own modules")]

mod answers;
mod api;
mod api_description;
mod backup;
mod chaos;
#[path = "../../../gateway/tests/gateway/common/mod.rs"]
#[expect(dead_code, reason = "the gateway's tests use the rest")]
mod common;
mod configuration;
mod connections;
mod doctor;
mod document;
mod examples;
#[path = "../../../engine/src/hub/tests/fake_hub.rs"]
mod fake_hub;
mod full_disk;
mod help;
mod jobs;
mod keys;
mod kills;
mod logs;
mod models;
mod overflow;
mod packages;
mod ports;
mod program;
mod progress;
mod python_client;
mod python_package;
mod reload;
mod reorder;
mod sign_in;
mod signals;
mod simulate;
mod sources;
mod sql_clients;
#[path = "../../../store/tests/support/mod.rs"]
mod support;
mod terminal;
mod upgrade;
mod web;
