//! AI columns in SQL: tables, AI operators over DataFusion, the Postgres protocol.
//!
//! A statement's AI calls are lifted out of their expressions ([`lift`]) into operators of our own
//! ([`node`], [`exec`]), which send each distinct prompt once, as rows of relQueries that stay open while
//! rows come ([`runner`]). Everything else of SQL is DataFusion's. Must not know HTTP or the engine.

pub mod access;
mod aggregate;
mod arrays;
pub mod budget;
mod cell;
mod clauses;
mod complexity;
mod error_text;
pub mod exec;
pub mod format;
pub mod function;
pub mod lift;
mod names;
pub mod node;
pub mod options;
pub mod place;
pub mod program;
pub mod prompt;
pub mod prune;
pub mod query;
mod read_ahead;
pub mod registry;
pub mod runner;
pub mod scans;
pub mod server;
pub mod session;
mod settings;
pub mod tables;
mod texts;
mod time_zone;

pub use access::SessionAccess;
pub use datafusion::common::DataFusionError;
pub use error_text::reason;
pub use session::{Running, Session, SessionPolicy};
pub use settings::number_limits;
