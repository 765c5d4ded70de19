//! Room in the queue: how many unfinished rows there are, of whom, and whether more may come. Counts only; must not
//! know the loop.
//!
//! Whoever comes first may fill most of the queue. Its last part is kept for tenants that have less of it than their
//! share, so that one tenant's flood leaves room for another's few rows.

use std::collections::HashMap;

use base::TenantId;

/// The last part of the queue that is kept: one row of so many.
const KEPT_ONE_IN: u64 = 10;
/// The weight of the tenant that may come next, in thousandths: the usual one.
const NEXT_WEIGHT: u64 = 1_000;

/// Rows of a queue that any tenant may have at once, whatever its weight.
pub fn rows_at_once_max(rows_max: u64) -> u64 {
    rows_max - rows_max / KEPT_ONE_IN
}

/// What bounds the rows that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueBound {
    /// The whole queue is full.
    Whole,
    /// Its last part is left, and the tenant has its share.
    Share,
}

impl std::fmt::Display for QueueBound {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Whole => "rows are waiting already and the limit is",
            Self::Share => "rows of this tenant are waiting already and its share of the queue is",
        })
    }
}

/// The queue has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// What is reached.
    pub bound: QueueBound,
    /// Unfinished rows that count against it.
    pub rows: u64,
    /// Rows that wanted in.
    pub asked: u64,
    /// The bound.
    pub limit: u64,
    /// Rows that an empty queue would take of this tenant.
    pub at_once_max: u64,
    /// Unfinished rows of all.
    pub unfinished: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct TenantRows {
    rows: u64,
    /// In thousandths.
    weight: u64,
}

/// The unfinished rows of all tenants.
#[derive(Debug)]
pub(crate) struct QueueRoom {
    rows_max: u64,
    unfinished: u64,
    /// Those that have rows.
    tenants: HashMap<TenantId, TenantRows>,
    /// Of those, together.
    weights: u64,
}

impl QueueRoom {
    pub(crate) fn new(rows_max: u64) -> Self {
        Self { rows_max, unfinished: 0, tenants: HashMap::new(), weights: 0 }
    }

    pub(crate) fn unfinished(&self) -> u64 {
        self.unfinished
    }

    pub(crate) fn rows_max(&self) -> u64 {
        self.rows_max
    }

    /// Another bound, for rows that come from now on: those that have room keep it.
    pub(crate) fn set_rows_max(&mut self, rows_max: u64) {
        self.rows_max = rows_max;
    }

    /// Counts rows of a tenant of this weight, or refuses them.
    pub(crate) fn take(&mut self, tenant: TenantId, weight: u32, rows: u64) -> Result<(), Full> {
        let weight = u64::from(weight);
        let held = self.tenants.get(&tenant).copied().unwrap_or_default();
        let others = self.weights - held.weight;
        let share = self.share(weight, others);
        let all = self.unfinished.saturating_add(rows);
        let at_once_max = rows_at_once_max(self.rows_max);
        let is_above_share = all > at_once_max && held.rows.saturating_add(rows) > share;
        if all > self.rows_max || is_above_share {
            let (bound, held, limit) = match all > self.rows_max {
                true => (QueueBound::Whole, self.unfinished, self.rows_max),
                false => (QueueBound::Share, held.rows, share),
            };
            let at_once_max = at_once_max.max(self.share(weight, 0));
            return Err(Full {
                bound,
                rows: held,
                asked: rows,
                limit,
                at_once_max,
                unfinished: self.unfinished,
            });
        }
        if rows > 0 {
            self.unfinished = all;
            self.weights = others + weight;
            self.tenants.insert(tenant, TenantRows { rows: held.rows + rows, weight });
        }
        Ok(())
    }

    /// Rows of the queue that are a tenant's share, beside others of these weights and one that may come.
    fn share(&self, weight: u64, others: u64) -> u64 {
        let share =
            u128::from(self.rows_max) * u128::from(weight) / u128::from(others + weight + NEXT_WEIGHT);
        u64::try_from(share).expect("a share is no larger than the whole")
    }

    /// Rows of a tenant are over.
    pub(crate) fn give_back(&mut self, tenant: TenantId, rows: u64) {
        if let Some(held) = self.tenants.get_mut(&tenant) {
            let rows = rows.min(held.rows);
            self.unfinished -= rows;
            held.rows -= rows;
            if held.rows == 0 {
                self.weights -= held.weight;
                self.tenants.remove(&tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TenantId = TenantId(1);
    const TWO: TenantId = TenantId(2);
    const USUAL: u32 = 1_000;

    fn check_invariants(room: &QueueRoom) {
        assert_eq!(room.unfinished, room.tenants.values().map(|held| held.rows).sum::<u64>());
        assert_eq!(room.weights, room.tenants.values().map(|held| held.weight).sum::<u64>());
        assert!(room.unfinished <= room.rows_max && room.tenants.values().all(|held| held.rows > 0));
    }

    #[test]
    fn the_last_tenth_is_for_those_below_their_share() {
        let mut room = QueueRoom::new(100);
        room.take(ONE, USUAL, 90).expect("nobody else has rows");
        let full = room.take(ONE, USUAL, 1).expect_err("beyond half of it nobody has the last tenth");
        assert_eq!((full.bound, full.rows, full.limit), (QueueBound::Share, 90, 50));
        room.take(TWO, USUAL, 10).expect("a third of it is another's");
        let full = room.take(TenantId(3), USUAL, 1).expect_err("it is full");
        assert_eq!((full.bound, full.rows, full.limit), (QueueBound::Whole, 100, 100));
        check_invariants(&room);
        room.give_back(ONE, 1);
        room.take(ONE, USUAL, 1).expect_err("it is not the flood's to fill again");
        room.take(TenantId(3), USUAL, 1).expect("but another's");
        check_invariants(&room);
        room.give_back(ONE, 89);
        room.give_back(TWO, 10);
        room.give_back(TenantId(3), 1);
        check_invariants(&room);
        assert_eq!(room.unfinished(), 0);
    }

    #[test]
    fn a_share_follows_weights() {
        let mut room = QueueRoom::new(100);
        room.take(ONE, 4 * USUAL, 70).expect("most is open");
        room.take(TWO, USUAL, 20).expect("up to the last tenth");
        // Of 4, 1 and the next one's 1.
        let full = room.take(TWO, USUAL, 1).expect_err("a sixth is 16");
        assert_eq!((full.bound, full.rows, full.limit), (QueueBound::Share, 20, 16));
        let full = room.take(ONE, 4 * USUAL, 1).expect_err("two thirds are 66");
        assert_eq!(full.limit, 66);
        room.take(TenantId(3), USUAL, 10).expect("one that comes gets the rest");
        check_invariants(&room);
        room.give_back(TWO, 20);
        room.take(ONE, 9 * USUAL, 11).expect("of a larger weight, nine elevenths are 81");
        check_invariants(&room);
    }

    #[test]
    fn another_bound_holds_for_rows_that_come_later() {
        let mut room = QueueRoom::new(100);
        room.take(ONE, USUAL, 80).expect("there is room");
        room.set_rows_max(50);
        assert_eq!(room.take(TWO, USUAL, 1).expect_err("there is none").limit, 50);
        room.give_back(ONE, 40);
        room.take(TWO, USUAL, 5).expect("those that had room kept it, and went");
        room.set_rows_max(1_000);
        room.take(ONE, USUAL, 800).expect("there is more");
        check_invariants(&room);
    }

    #[test]
    fn what_an_empty_queue_would_not_take_is_told_by_what_it_would() {
        let room = |asked, weight| QueueRoom::new(100).take(ONE, weight, asked);
        let full = room(91, USUAL).expect_err("the last tenth is kept for others");
        assert_eq!((full.bound, full.at_once_max), (QueueBound::Share, 90));
        assert_eq!(room(101, USUAL).expect_err("more than all").at_once_max, 90);
        assert_eq!(room(96, 19 * USUAL).expect_err("its share is 95").at_once_max, 95);
        room(95, 19 * USUAL).expect("so many are its share");
        // Small queues have no last tenth.
        QueueRoom::new(9).take(ONE, 1, 9).expect("all of it");
    }
}
