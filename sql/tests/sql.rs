//! Statements over small tables, with a model that answers from a function and counts what it is asked.

#[path = "sql/calls.rs"]
mod calls;
#[path = "sql/common.rs"]
mod common;
#[path = "sql/plans.rs"]
mod plans;
