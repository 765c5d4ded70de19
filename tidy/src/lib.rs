//! Style as tests. All of it is in `tests/tidy.rs`: there is nothing here to call.
