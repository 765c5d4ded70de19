//! What replicas could hold that have left, for as long as their return is waited for: a row that only such a one
//! could hold waits for it, as rows do whose replica is down.

use base::{Nanos, Time, TokenCount};

/// Rooms that are remembered, each larger than those that came after it.
const ROOMS_MAX: usize = 64;

/// Rooms of replicas that have left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed(Vec<Room>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// Most tokens; none: any row.
    tokens_max: Option<TokenCount>,
    until: Time,
}

impl Departed {
    /// A replica leaves, and is waited for so long.
    pub fn leave(&mut self, tokens_max: Option<TokenCount>, now: Time, span: Nanos) {
        // What holds no more and left before says nothing any more.
        self.0.retain(|one| one.until > now && is_larger(one.tokens_max, tokens_max));
        if self.0.len() < ROOMS_MAX {
            self.0.push(Room { tokens_max, until: now + span });
        }
    }

    /// The rooms of those that are waited for; none: one without a limit.
    pub fn rooms(&self, now: Time) -> impl Iterator<Item = Option<TokenCount>> + '_ {
        self.0.iter().filter(move |one| one.until > now).map(|one| one.tokens_max)
    }

    /// Whether one of them could hold so many tokens.
    pub(crate) fn holds(&self, tokens: u64, now: Time) -> bool {
        self.rooms(now).any(|room| room.is_none_or(|most| tokens <= most.0))
    }
}

/// Whether a limit is above another one; none is above all.
fn is_larger(one: Option<TokenCount>, other: Option<TokenCount>) -> bool {
    match (one, other) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(one), Some(other)) => one > other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_left_counts_for_a_while_and_only_where_nothing_larger_left_later() {
        let mut departed = Departed::default();
        let room = |tokens| Some(TokenCount(tokens));
        departed.leave(room(50), Time(0), Nanos(100));
        departed.leave(room(30), Time(10), Nanos(100));
        assert!(departed.holds(50, Time(99)) && !departed.holds(51, Time(99)));
        assert!(departed.holds(30, Time(100)) && !departed.holds(31, Time(100)), "the larger is forgotten");
        departed.leave(room(40), Time(20), Nanos(100));
        assert_eq!(departed.rooms(Time(20)).collect::<Vec<_>>(), [room(50), room(40)]);
        departed.leave(None, Time(30), Nanos(100));
        assert!(departed.holds(u64::MAX, Time(129)) && !departed.holds(1, Time(130)));
        assert_eq!(departed.0.len(), 1);
    }

    #[test]
    fn however_many_leave_a_few_rooms_are_remembered() {
        let mut departed = Departed::default();
        for tokens in (1..1_000).rev() {
            departed.leave(Some(TokenCount(tokens)), Time(0), Nanos(100));
        }
        assert_eq!(departed.0.len(), ROOMS_MAX);
        assert!(departed.holds(999, Time(0)), "the largest stays");
    }
}
