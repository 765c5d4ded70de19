//! The edge: HTTP in, relQueries to the loop thread, answers out.
//!
//! [`app::start`] runs everything; the `relserve` command and the tests start the same app. The life of a
//! request: `routes` reads it, `wire` checks its fields, [`prepare`] turns it into work items, [`service`]
//! answers what is known and hands the rest to the [`driver`], which owns scheduler and executor; answers
//! appear on a [`board`] that replies and streams read.

pub mod account;
pub mod app;
pub mod auth;
pub mod backend;
pub mod batches;
pub mod bench;
pub mod board;
pub mod body;
pub mod calibrate;
pub mod claim;
pub mod cli;
pub mod clock;
pub mod config;
pub mod constraints;
pub mod corpora;
pub mod cors;
pub mod demo;
pub mod driver;
pub mod error;
pub mod eval;
pub mod files;
pub mod flush;
pub mod health;
pub mod intake;
pub mod jobs;
pub mod json;
pub mod live;
pub mod metrics;
pub mod model;
pub mod openapi;
pub mod pins;
pub mod prepare;
pub mod query;
pub mod registry;
pub mod remote;
pub mod reorder;
pub mod repeats;
pub mod results;
pub mod routes;
pub mod schemas;
pub mod service;
pub mod simulate;
pub mod stream;
pub mod tables;
pub mod tickets;
pub mod wire;
