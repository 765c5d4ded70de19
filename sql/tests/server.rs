//! Real clients over real sockets, against a server whose model is a function.

#[path = "server/clients.rs"]
mod clients;
#[path = "server/errors.rs"]
mod errors;
#[path = "server/fuzz.rs"]
mod fuzz;
#[path = "server/harness.rs"]
mod harness;
#[path = "server/interruptions.rs"]
mod interruptions;
#[path = "server/login.rs"]
mod login;
#[path = "server/psql.rs"]
mod psql;
#[path = "server/results.rs"]
mod results;
#[path = "server/state.rs"]
mod state;
