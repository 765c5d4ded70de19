//! Numbers of relQueries as clients see them.
//!
//! The server counts relQueries up, so such a number would tell a tenant how many others have asked, and when. What
//! is shown is that number under a permutation that only this process knows: no two are shown alike, and a number
//! that was shown finds its relQuery. What a database keeps under a shown number is found by the whole word, by any
//! process.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use base::RelQueryId;

/// Rounds of the permutation: four of a good function hide all; two more cost nanoseconds.
const ROUNDS: u8 = 6;

/// The function of a round, SipHash under a random key.
static ROUND: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The number that stands for a relQuery.
pub(crate) fn shown(id: RelQueryId) -> u64 {
    (0..ROUNDS).fold(id.0, |number, round| {
        let (left, right) = halves(number);
        joined(right, left ^ mixed(round, right))
    })
}

/// The relQuery that a number stands for, whether or not there is one.
pub(crate) fn found(number: u64) -> RelQueryId {
    let number = (0..ROUNDS).rev().fold(number, |number, round| {
        let (left, right) = halves(number);
        joined(right ^ mixed(round, left), left)
    });
    RelQueryId(number)
}

fn halves(number: u64) -> (u32, u32) {
    ((number >> 32) as u32, number as u32)
}

fn joined(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

fn mixed(round: u8, half: u32) -> u32 {
    ROUND.hash_one((round, half)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_finds_its_relquery_and_tells_nothing_of_its_neighbours() {
        let first = 117_661_113_477_693_440_u64; // as a process that starts today begins
        let numbers: Vec<u64> = (first..first + 1_000).map(|id| shown(RelQueryId(id))).collect();
        for (number, id) in numbers.iter().zip(first..) {
            assert_eq!(found(*number), RelQueryId(id));
        }
        let mut bits = [0_u32; 64];
        for pair in numbers.windows(2) {
            let apart = pair[0] ^ pair[1];
            (0..64).for_each(|bit| bits[bit] += (apart >> bit & 1) as u32);
        }
        // Half of the neighbours differ in each bit; 400 of 999 is six standard deviations off.
        assert!(bits.iter().all(|count| (400..600).contains(count)), "{bits:?}");
        for any in [0, 1, u64::MAX] {
            assert_eq!(shown(found(any)), any);
        }
    }
}
