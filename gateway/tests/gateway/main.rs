//! The gateway over real sockets, one file per promise. One binary, because linking is what takes long.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(unreachable_pub, reason = "a test binary exports nothing; `pub` is for its own modules")]

mod addins;
mod auto;
mod bad_input;
mod batches;
mod cellm;
mod cells;
mod checkpoint;
mod common;
mod constraints;
mod corpora;
mod dashboards;
mod deadlines;
mod disconnect;
mod discovery;
mod dns_server;
mod fleets;
mod found_by_dns;
mod idempotency;
mod isolation;
mod last_minutes;
mod leases;
mod live;
mod llama_cpp;
mod lowered;
mod models;
mod operation;
mod overload;
mod people;
mod pins;
mod pml;
mod postgres;
mod postgres_client;
mod queries;
mod refusals;
mod relqueries;
mod replica_streams;
mod replicas;
mod restarts;
mod served_addins;
mod shutdown;
mod speculation;
mod sql;
mod sql_budgets;
mod sql_files;
mod sql_sessions;
mod sql_tickets;
mod streams;
#[path = "../../../store/tests/support/mod.rs"]
mod support;
mod tenancy;
mod tickets;
mod tier;
mod vllm;
mod workbooks;
