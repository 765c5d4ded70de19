//! The best of several orders, each by what it is found to be worth.
//!
//! Greedy choice can lose to the table as it lies: a field of two values wins by its count, and splits long
//! groups. So nobody gets its answer unasked.

use super::dependency::Dependencies;
use super::fixed::sort_rows;
use super::ggr::{EarlyStop, ggr};
use super::order::{Reordering, Worth, worth};
use super::search::{FixedSearch, best_fixed_order};
use super::table::FieldTable;

/// How an order was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The table as it stands.
    Given,
    /// Its rows sorted; its fields as they stand.
    RowsSorted,
    /// One order of fields for all rows, and rows sorted by it.
    FixedFields,
    /// Greedy Group Recursion.
    Ggr,
}

impl Method {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Given => "original",
            Self::RowsSorted => "rows sorted",
            Self::FixedFields => "best fixed",
            Self::Ggr => "GGR",
        }
    }
}

/// An order, how it was found and what it is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BestOrder {
    /// The order.
    pub order: Reordering,
    /// How it was found.
    pub method: Method,
    /// What it is worth, recomputed.
    pub worth: Worth,
}

impl BestOrder {
    /// An order with what it is worth.
    pub fn weighed(table: &FieldTable, method: Method, order: Reordering) -> Self {
        Self { worth: worth(table, &order), method, order }
    }

    /// The better of two: what reuses more, then what has the greater hit count; of equal ones `self`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if other.is_better_than(&self) { other } else { self }
    }

    /// Whether it reuses more than another, or as much with the greater hit count.
    pub fn is_better_than(&self, other: &Self) -> bool {
        let key = |order: &Self| (order.worth.reused, order.worth.hit_count);
        key(self) > key(other)
    }
}

/// Of the given order, sorted rows, the best fixed order and GGR, that which reuses most: what a prefix cache
/// of one row need not compute. Of equal ones the first, which changes least.
pub fn best_order(table: &FieldTable, dependencies: &Dependencies, stop: &EarlyStop) -> BestOrder {
    let fixed = || best_fixed_order(table, &FixedSearch::default()).reordering(table);
    BestOrder::weighed(table, Method::Given, Reordering::original(table))
        .or(BestOrder::weighed(table, Method::RowsSorted, sort_rows(table)))
        .or(BestOrder::weighed(table, Method::FixedFields, fixed()))
        .or(BestOrder::weighed(table, Method::Ggr, ggr(table, dependencies, stop)))
}
