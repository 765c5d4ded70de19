//! Verdicts about keys, remembered for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base::{Nanos, Time};
use serving::caller::WeightedTenant;
use store::{KeyScope, UnixMillis};

/// Most verdicts remembered; beyond it all are forgotten, which costs one lookup each.
const REMEMBERED_MAX: usize = 10_000;

/// What a working key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    pub tenant: WeightedTenant,
    /// The key's number; none where nobody needs one.
    pub key: Option<u64>,
    /// Whether it is an operator's, who sees all tenants and changes them.
    pub is_operator: bool,
    /// When the key stops working, if ever.
    pub expires: Option<UnixMillis>,
    /// What it may.
    pub scope: Arc<KeyScope>,
}

/// Verdicts about keys, by hash of the key.
#[derive(Debug, Default)]
pub struct Remembered(Mutex<HashMap<[u8; 32], (KeyHolder, Time)>>);

impl Remembered {
    pub(super) fn get(&self, hash: &[u8; 32], now: Time, lifetime: Nanos) -> Option<KeyHolder> {
        let verdicts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        verdicts.get(hash).filter(|(_, since)| now.since(*since) < lifetime).map(|(holder, _)| holder.clone())
    }

    pub(super) fn put(&self, hash: [u8; 32], holder: KeyHolder, now: Time) {
        let mut verdicts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if verdicts.len() >= REMEMBERED_MAX {
            verdicts.clear();
        }
        verdicts.insert(hash, (holder, now));
    }

    /// Keys, or what tenants are, have changed: each is looked up anew.
    pub(crate) fn forget_all(&self) {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    }

    pub(super) fn forget(&self, hash: &[u8; 32]) {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(hash);
    }
}

#[cfg(test)]
mod tests {
    use base::TenantId;

    use super::*;

    #[test]
    fn a_verdict_is_forgotten_after_its_lifetime() {
        let remembered = Remembered::default();
        let tenant = WeightedTenant::usual(TenantId(4));
        let scope = Arc::default();
        let holder = KeyHolder { tenant, key: Some(3), is_operator: false, expires: None, scope };
        remembered.put([1; 32], holder.clone(), Time(100));
        assert_eq!(remembered.get(&[1; 32], Time(109), Nanos(10)), Some(holder));
        assert_eq!(remembered.get(&[1; 32], Time(110), Nanos(10)), None);
        remembered.forget_all();
        assert_eq!(remembered.get(&[1; 32], Time(101), Nanos(10)), None);
    }
}
