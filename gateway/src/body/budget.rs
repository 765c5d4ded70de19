//! Bytes of request bodies that this server holds at once, whoever sends them. How many it may hold is each request's
//! to say, for that changes while the server runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix_web::web::Bytes;

/// What is held.
#[derive(Debug, Default)]
pub struct BodyBudget {
    held: AtomicU64,
}

impl BodyBudget {
    /// Bytes held now.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// A body without bytes yet, which takes more while all bodies together have at most `max`.
    pub(super) fn body(self: &Arc<Self>, max: u64) -> HeldBody {
        HeldBody { bytes: Vec::new(), held: 0, max, budget: Arc::clone(self) }
    }

    /// What is held outside of bodies, nothing yet.
    pub(crate) fn charge(self: &Arc<Self>) -> BodyCharge {
        BodyCharge { held: 0, budget: Arc::clone(self) }
    }

    fn take(&self, more: u64, max: u64) -> bool {
        let fits = |held: u64| held.checked_add(more).filter(|all| *all <= max);
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }
}

/// Bytes that count among those of bodies and are held elsewhere: of what is no body yet.
#[derive(Debug)]
pub(crate) struct BodyCharge {
    held: u64,
    budget: Arc<BodyBudget>,
}

impl BodyCharge {
    /// Counts more, while all bodies together have at most `max`; false where there is no room.
    pub(crate) fn take(&mut self, more: u64, max: u64) -> bool {
        let fits = self.budget.take(more, max);
        if fits {
            self.held += more;
        }
        fits
    }

    /// Counts at most so many from now on.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let less = self.held.saturating_sub(bytes);
        self.held -= less;
        self.budget.held.fetch_sub(less, Ordering::AcqRel);
    }
}

impl Drop for BodyCharge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// A body as it arrives. It counts until the last copy of its bytes is gone.
#[derive(Debug)]
pub(crate) struct HeldBody {
    bytes: Vec<u8>,
    /// What it counts for: its room, not its length.
    held: u64,
    /// Of all bodies.
    max: u64,
    budget: Arc<BodyBudget>,
}

impl HeldBody {
    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Bytes that all bodies may have.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// Takes in what has arrived; false where there is no room.
    pub(crate) fn extend(&mut self, chunk: &[u8]) -> bool {
        let len = self.bytes.len() + chunk.len();
        if len > self.bytes.capacity() {
            // Half as much again, so that a long body is not copied for each of its chunks.
            let room = len.max(self.bytes.capacity() * 3 / 2);
            let more = room as u64 - self.held;
            if !self.budget.take(more, self.max) {
                return false;
            }
            self.held += more;
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(chunk);
        true
    }

    /// The whole.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.held, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_counts_until_its_last_copy_is_gone_and_no_two_have_more_than_there_is() {
        let budget = Arc::<BodyBudget>::default();
        let mut body = budget.body(1_000);
        assert!(body.extend(&[1; 400]) && body.extend(&[2; 200]));
        let mut other = budget.body(1_000);
        assert!(other.extend(&[3; 300]));
        assert!(!other.extend(&[3; 200]), "there is no room for 1,100");
        assert!(budget.body(1_100).extend(&[3; 200]), "by another bound there is");
        drop(other);
        let bytes = body.into_bytes();
        assert_eq!((bytes.len(), &bytes[399..401]), (600, &[1, 2][..]));
        let copy = bytes.clone();
        drop(bytes);
        assert!((600..=1_000).contains(&budget.held()));
        drop(copy);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn what_is_no_body_yet_counts_too() {
        let budget = Arc::<BodyBudget>::default();
        let mut charge = budget.charge();
        assert!(charge.take(400, 1_000) && charge.take(200, 1_000) && !charge.take(500, 1_000));
        assert!(!budget.body(1_000).extend(&[1; 500]), "a body has the room that is left");
        charge.shrink_to(700);
        assert_eq!(budget.held(), 600, "it does not grow");
        charge.shrink_to(100);
        assert_eq!(budget.held(), 100);
        drop(charge);
        assert_eq!(budget.held(), 0);
    }
}
