//! The HTTP edge: requests in, relQueries to `serving`, answers out.
//!
//! [`app::start`] runs the server; the `relserve` command and the tests start the same one. The life of a
//! request: `routes` reads it, `wire` checks its fields, [`services::prepare`] turns it into work items,
//! `serving::submit` answers what is known and runs the rest; `stream` and `wire` show what has become of it.

pub mod access_log;
pub mod app;
pub mod arrival;
pub mod auth;
pub mod body;
mod certificates;
pub mod config;
pub mod connections;
pub mod cors;
mod current_state;
pub mod error;
pub mod json;
mod kept_replies;
mod listener;
pub mod models;
mod observed;
pub mod openapi;
mod origin_check;
pub mod ports;
mod request_id;
pub mod routes;
pub mod services;
pub mod state;
pub mod stream;
pub mod wire;
