//! What was learned of how likely answers are without content, by template: a bounded memory of each model.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// Templates of a model that are remembered.
const KEPT_MAX: usize = 1_000;

/// How likely answers are without content, one for each, in the constraint's order.
pub type Priors = Arc<[f32]>;

/// What was learned of a model's templates.
#[derive(Default)]
pub struct Calibrations {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    priors: HashMap<[u8; 32], Priors>,
    /// Oldest first.
    order: VecDeque<[u8; 32]>,
}

impl Calibrations {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn known(&self, key: &[u8; 32]) -> Option<Priors> {
        self.lock().priors.get(key).cloned()
    }

    pub(super) fn keep(&self, key: [u8; 32], priors: &Priors) {
        let mut known = self.lock();
        if known.priors.insert(key, Arc::clone(priors)).is_none() {
            known.order.push_back(key);
        }
        while known.order.len() > KEPT_MAX {
            if let Some(oldest) = known.order.pop_front() {
                known.priors.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_template_is_forgotten_first() {
        let all = Calibrations::default();
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            key
        };
        for number in 0..=KEPT_MAX {
            all.keep(key(number), &[number as f32][..].into());
        }
        let known = all.lock();
        assert_eq!((known.priors.len(), known.order.len()), (KEPT_MAX, KEPT_MAX));
        assert!(!known.priors.contains_key(&key(0)) && known.priors.contains_key(&key(1)));
    }
}
