//! SQL: a tenant's statements, whose AI columns run as relQueries of class `dashboard`.

pub mod runner;
