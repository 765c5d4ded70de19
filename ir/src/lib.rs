//! The span tree of relQueries: plans, rewrite rules, and lowering to work items.
//!
//! Everything a user can send becomes one [`Plan`]; [`rewrite()`] gives an equal and cheaper one;
//! [`lower()`] turns it into the scheduler's work items. Pure functions over plain data: this crate
//! must not know clocks, threads, HTTP, tensors or how a step is scheduled.

pub mod bucket;
pub mod catalogue;
mod cell;
mod conversation;
mod error;
mod explain;
mod lower;
mod plan;
pub mod pml;
pub mod reorder;
pub mod rewrite;
mod shape;
pub mod span;
mod template;

pub use cell::Cell;
pub use conversation::{Encoder, Sectioned, Tags};
pub use error::{IrError, RowProblem};
pub use explain::explain;
pub use lower::{LowerOptions, Lowered, RowAnswer, lower, lower_rendered};
pub use plan::{Plan, Table, TableRow};
pub use rewrite::{Rules, characters, order_records, record_column, rewrite};
pub use template::{Template, TemplateError, TemplatePart};
