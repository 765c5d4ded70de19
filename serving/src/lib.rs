//! The serving runtime: relQueries in, answers out, with no HTTP.
//!
//! [`start::start`] makes the loop and what it shares. [`submit::submit`] answers what is known and hands the
//! rest to the [`driver`], the thread that owns scheduler and executor; answers appear in a [`relquery_state`]
//! that any number of readers follow, and an owner's handle ([`ownership`]) keeps the work running while
//! somebody waits. [`replicas`] run rows on other servers. Doors (HTTP in `gateway`) stand before this crate and convert; it knows none of
//! them.

pub mod account;
mod auto;
pub mod budgets;
pub mod calibrate;
pub mod caller;
pub mod clock;
pub mod column;
pub mod config;
pub mod database_clock;
pub mod demo;
pub mod digests;
pub mod driver;
pub mod error;
pub mod gateway_ids;
pub mod health;
pub mod intake;
pub mod known_models;
pub mod label;
pub mod leases;
pub mod live;
pub mod load;
pub mod metrics;
pub mod model;
pub mod ownership;
pub mod pins;
pub mod price;
pub mod queue_room;
pub mod registry;
pub mod relquery_state;
pub mod replicas;
pub mod results;
pub mod runtime;
pub mod shared;
pub mod start;
pub mod submit;
pub mod ticket_usage;
pub mod traces;
pub mod usage_journal;
pub mod usage_replay;
pub mod usage_writer;
pub mod view;

pub use error::RequestError;
pub use runtime::Runtime;
