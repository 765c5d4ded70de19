//! How gateways that share a replica divide it: as one queue in front of it would. Pure functions over what each
//! gateway has told of its own queue; who tells it to whom is not known here.
//!
//! [`divide`] says what each should have, [`settle`] what one may take now: what another still holds is not there
//! to take, so that all together never have more in flight than the replica runs. That needs one promise of a
//! gateway: from its report until the next lease reaches it, it has no more in flight than it reported to hold.

use base::{ServiceClass, Time, TokenCount};

use super::config::ReplicaConfig;

/// The part of a replica that a gateway may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaShare {
    /// Most rows in flight; 0: nothing new.
    pub rows: u32,
    /// Most unfinished tokens in flight. Absent: no limit but rows.
    pub tokens: Option<TokenCount>,
}

/// Rows and their unfinished tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub rows: u32,
    pub tokens: TokenCount,
}

/// A stretch of a gateway's queue: rows of one relQuery, those in flight among them, or of several behind one
/// another. The order of the first three fields is that of relQueries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStretch {
    /// Who waits.
    pub class: ServiceClass,
    /// The policy's number, ns; smaller goes first.
    pub priority: u64,
    /// When its relQuery arrived, on a clock that all gateways share.
    pub arrival: Time,
    /// How many rows.
    pub rows: u32,
    /// Tokens of the largest of them.
    pub row_tokens: TokenCount,
}

impl QueueStretch {
    fn key(&self) -> (ServiceClass, u64, Time) {
        (self.class, self.priority, self.arrival)
    }
}

/// Rows of a replica for each that a gateway has in any case.
const FLOORS: u32 = 4;

/// What each gateway should have of a replica, given what each has to do, its first relQuery first.
///
/// The rows that come first in the order of all queues together get the room there is; where the next one does
/// not fit, nothing overtakes it. What nobody asks for is divided evenly, so that new rows find room at once.
/// Where that is a quarter of the rows at most, each gateway has one in any case, with its part of the tokens: its
/// first row need not wait until others give.
pub fn divide(capacity: ReplicaConfig, queues: &[&[QueueStretch]]) -> Vec<ReplicaShare> {
    let Ok(gateways @ 1..) = u32::try_from(queues.len()) else { return Vec::new() };
    let floor_rows = u32::from(capacity.rows_max / FLOORS >= gateways);
    let tokens_max = capacity.tokens_max.map(|tokens| tokens.0);
    let floor_tokens =
        tokens_max.map(|tokens| tokens / u64::from(capacity.rows_max.max(1)) * u64::from(floor_rows));
    let mut division = Division {
        rows_left: capacity.rows_max - floor_rows * gateways,
        tokens_left: tokens_max.zip(floor_tokens).map(|(all, floor)| all - floor * u64::from(gateways)),
        floor: (floor_rows, floor_tokens.unwrap_or(0)),
        taken: vec![(0, 0); queues.len()],
        tokens_max,
    };
    let mut heads = vec![0; queues.len()];
    while let Some((gateway, stretch)) = first(queues, &heads) {
        heads[gateway] += 1;
        if !division.take(gateway, stretch) {
            break;
        }
    }
    division.shares()
}

/// The gateway whose next stretch comes first; of equal ones the first gateway's.
fn first<'a>(queues: &[&'a [QueueStretch]], heads: &[usize]) -> Option<(usize, &'a QueueStretch)> {
    let next = queues.iter().zip(heads).enumerate();
    let next = next.filter_map(|(gateway, (queue, head))| Some((gateway, queue.get(*head)?)));
    next.min_by_key(|(_, stretch)| stretch.key())
}

/// A division under way.
struct Division {
    /// What nobody has yet, beyond the floors of all.
    rows_left: u32,
    tokens_left: Option<u64>,
    /// What each has in any case.
    floor: (u32, u64),
    /// What each gateway's rows take, out of its floor first.
    taken: Vec<(u32, u64)>,
    tokens_max: Option<u64>,
}

impl Division {
    /// Gives a gateway room for a stretch. False: not for all of it.
    fn take(&mut self, gateway: usize, stretch: &QueueStretch) -> bool {
        let (rows_taken, tokens_taken) = self.taken[gateway];
        let (free_rows, free_tokens) =
            (self.floor.0.saturating_sub(rows_taken), self.floor.1.saturating_sub(tokens_taken));
        let mut rows = stretch.rows.min(self.rows_left + free_rows);
        let mut row_tokens = 0;
        if let (Some(left), Some(most)) = (self.tokens_left, self.tokens_max) {
            // A row that is larger than the replica is refused by its own gateway; it holds nobody up.
            row_tokens = stretch.row_tokens.0.clamp(1, most);
            let fit = (left + free_tokens) / row_tokens;
            rows = rows.min(u32::try_from(fit).unwrap_or(u32::MAX));
        }
        let tokens = row_tokens * u64::from(rows);
        self.rows_left -= rows.saturating_sub(free_rows);
        self.tokens_left = self.tokens_left.map(|left| left - tokens.saturating_sub(free_tokens));
        self.taken[gateway] = (rows_taken + rows, tokens_taken + tokens);
        rows == stretch.rows
    }

    /// What each has, with an even part of what is left.
    fn shares(self) -> Vec<ReplicaShare> {
        let (gateways, rows_left) = (self.taken.len() as u64, u64::from(self.rows_left));
        let even = |left: u64, place: u64| left / gateways + u64::from(place < left % gateways);
        let share = |(place, (rows, tokens)): (u64, &(u32, u64))| ReplicaShare {
            rows: rows.max(&self.floor.0) + even(rows_left, place) as u32,
            tokens: self.tokens_left.map(|left| TokenCount(tokens.max(&self.floor.1) + even(left, place))),
        };
        (0..).zip(&self.taken).map(share).collect()
    }
}

/// A gateway's lease of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledShare {
    /// What it may use from now on.
    pub share: ReplicaShare,
    /// What it holds until it says otherwise: its rows in flight may be more than its share.
    pub held: Load,
    /// It has what it should have; otherwise it is to report again soon, to give or to take.
    pub is_settled: bool,
}

/// What a gateway that holds `held` may use now and what it holds then, where `target` is what it should have and
/// `others` what the others hold together.
///
/// It gives at once: it sends nothing new beyond its target, and holds no more than it reports once its rows
/// have ended. It takes what nobody holds.
pub fn settle(capacity: ReplicaConfig, target: ReplicaShare, held: Load, others: Load) -> SettledShare {
    let one = |all: u64, target: u64, held: u64, others: u64| match target <= held {
        true => (target, held),
        false => {
            let most = target.min(all.saturating_sub(others).max(held));
            (most, most)
        }
    };
    let wide = u64::from;
    let (rows, rows_held) =
        one(wide(capacity.rows_max), wide(target.rows), wide(held.rows), wide(others.rows));
    let tokens = capacity.tokens_max.zip(target.tokens);
    let tokens = tokens.map(|(all, target)| one(all.0, target.0, held.tokens.0, others.tokens.0));
    let tokens_held = tokens.map_or(held.tokens.0, |(_, held)| held);
    let narrow = |rows: u64| u32::try_from(rows).unwrap_or(u32::MAX);
    let share = ReplicaShare { rows: narrow(rows), tokens: tokens.map(|(tokens, _)| TokenCount(tokens)) };
    let is_even = share == target && rows_held == rows && tokens.is_none_or(|(share, held)| share == held);
    let held = Load { rows: narrow(rows_held), tokens: TokenCount(tokens_held) };
    SettledShare { share, held, is_settled: is_even }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows_max: u32) -> ReplicaConfig {
        ReplicaConfig { rows_max, tokens_max: None }
    }

    fn stretch(priority: u64, rows: u32) -> QueueStretch {
        let class = ServiceClass::Interactive;
        QueueStretch { class, priority, arrival: Time(0), rows, row_tokens: TokenCount(10) }
    }

    fn rows(capacity: ReplicaConfig, queues: &[&[QueueStretch]]) -> Vec<u32> {
        divide(capacity, queues).iter().map(|share| share.rows).collect()
    }

    #[test]
    fn one_gateway_has_everything_and_two_idle_ones_half_each() {
        assert_eq!(rows(of(64), &[&[]]), [64]);
        assert_eq!(rows(of(64), &[&[stretch(1, 1_000)]]), [64]);
        assert_eq!(rows(of(65), &[&[], &[]]), [33, 32]);
        assert!(rows(of(64), &[]).is_empty());
    }

    #[test]
    fn what_comes_first_gets_the_room_and_everybody_a_row() {
        let (long, short) = ([stretch(900, 500)], [stretch(5, 20)]);
        assert_eq!(rows(of(64), &[&long, &short]), [44, 20]);
        assert_eq!(rows(of(64), &[&long, &[]]), [63, 1], "an idle gateway's part goes to the busy one");
        assert_eq!(rows(of(64), &[&long, &[stretch(5, 200)]]), [1, 63]);
        assert_eq!(rows(of(64), &[&[stretch(1, 10), stretch(9, 90)], &[stretch(5, 30)]]), [34, 30]);
        assert_eq!(rows(of(64), &[&[stretch(1, 20)], &[]]), [42, 22], "what nobody asks for is divided");
        assert_eq!(rows(of(1), &[&long, &short]), [0, 1], "too few rows for a floor");
        assert_eq!(rows(of(7), &[&long, &[]]), [7, 0]);
        let bulk = QueueStretch { class: ServiceClass::Bulk, ..stretch(0, 100) };
        assert_eq!(rows(of(8), &[&[bulk], &[stretch(7, 100)]]), [1, 7], "a class comes before all numbers");
        let late = QueueStretch { arrival: Time(9), ..stretch(0, 100) };
        assert_eq!(rows(of(8), &[&[late], &[stretch(0, 6)]]), [2, 6], "first come, first served");
    }

    #[test]
    fn tokens_are_divided_in_the_same_order() {
        let capacity = ReplicaConfig { rows_max: 10, tokens_max: Some(TokenCount(100)) };
        let big = QueueStretch { row_tokens: TokenCount(45), ..stretch(1, 5) };
        let shares = divide(capacity, &[&[big], &[stretch(5, 9)]]);
        let tokens = |shares: &[ReplicaShare]| shares.iter().filter_map(|one| one.tokens).collect::<Vec<_>>();
        // Two rows of 45 and the other's floor of 10: a third has no room, and what is behind it waits.
        assert_eq!(tokens(&shares), [TokenCount(90), TokenCount(10)]);
        let giant = QueueStretch { row_tokens: TokenCount(1_000), ..stretch(1, 1) };
        assert_eq!(tokens(&divide(capacity, &[&[giant]])), [TokenCount(100)]);
    }

    #[test]
    fn a_gateway_takes_what_nobody_holds_and_gives_as_its_rows_end() {
        let load = |rows| Load { rows, tokens: TokenCount(0) };
        let target = |rows| ReplicaShare { rows, tokens: None };
        let settled = |target_rows, held, others| {
            let SettledShare { share, held, is_settled } =
                settle(of(64), target(target_rows), load(held), load(others));
            (share.rows, held.rows, is_settled)
        };
        assert_eq!(settled(64, 0, 0), (64, 64, true));
        assert_eq!(settled(32, 0, 60), (4, 4, false), "the other has not given yet");
        assert_eq!(settled(32, 60, 4), (32, 60, false), "its rows run on");
        assert_eq!(settled(32, 32, 4), (32, 32, true));
        assert_eq!(settled(40, 20, 64), (20, 20, false), "the others hold too much");
    }
}
