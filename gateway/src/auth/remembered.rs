//! Verdicts about keys, remembered for a while.

use std::collections::HashMap;
use std::sync::Mutex;

use base::{Nanos, Time};
use serving::caller::WeightedTenant;

/// Most verdicts remembered; beyond it all are forgotten, which costs one lookup each.
const REMEMBERED_MAX: usize = 10_000;

/// Verdicts about keys, by hash of the key.
#[derive(Debug, Default)]
pub struct Remembered(Mutex<HashMap<[u8; 32], (WeightedTenant, Time)>>);

impl Remembered {
    pub(super) fn get(&self, hash: &[u8; 32], now: Time, lifetime: Nanos) -> Option<WeightedTenant> {
        let verdicts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        verdicts.get(hash).filter(|(_, since)| now.since(*since) < lifetime).map(|(tenant, _)| *tenant)
    }

    pub(super) fn put(&self, hash: [u8; 32], tenant: WeightedTenant, now: Time) {
        let mut verdicts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if verdicts.len() >= REMEMBERED_MAX {
            verdicts.clear();
        }
        verdicts.insert(hash, (tenant, now));
    }
}

#[cfg(test)]
mod tests {
    use base::TenantId;

    use super::*;

    #[test]
    fn a_verdict_is_forgotten_after_its_lifetime() {
        let remembered = Remembered::default();
        let member = WeightedTenant::usual(TenantId(4));
        remembered.put([1; 32], member, Time(100));
        assert_eq!(remembered.get(&[1; 32], Time(109), Nanos(10)), Some(member));
        assert_eq!(remembered.get(&[1; 32], Time(110), Nanos(10)), None);
    }
}
