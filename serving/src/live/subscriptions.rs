//! Who looks: so many of one tenant, so many of all tenants, and operators on subscriptions of their own, so
//! that nobody who looks keeps the others from it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::Viewer;
use crate::config::LiveConfig;

/// The bound that keeps one more from looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Of whom.
    pub what: &'static str,
    /// How many may.
    pub limit: usize,
    /// The setting that says so.
    pub setting: &'static str,
}

/// The subscriptions.
#[derive(Debug)]
pub struct Subscriptions {
    of_tenants: Full,
    of_tenant: Full,
    of_operators: Full,
    by_viewer: Mutex<BTreeMap<Viewer, usize>>,
    /// All that are taken: the loop asks before every step, without a lock.
    taken: AtomicUsize,
}

impl Subscriptions {
    /// All free.
    pub fn new(settings: &LiveConfig) -> Self {
        let full = |what, limit, setting| Full { what, limit, setting };
        Self {
            of_tenants: full("live views of tenants", settings.readers_max, "live.readers_max"),
            of_tenant: full(
                "live views of this tenant",
                settings.tenant_readers_max,
                "live.tenant_readers_max",
            ),
            of_operators: full(
                "live views of operators",
                settings.operator_readers_max,
                "live.operator_readers_max",
            ),
            by_viewer: Mutex::default(),
            taken: AtomicUsize::new(0),
        }
    }

    fn by_viewer(&self) -> MutexGuard<'_, BTreeMap<Viewer, usize>> {
        self.by_viewer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes one.
    pub fn take(self: &Arc<Self>, viewer: Viewer) -> Result<Subscription, Full> {
        let mut by_viewer = self.by_viewer();
        let own = by_viewer.get(&viewer).copied().unwrap_or_default();
        let below = |taken: usize, full: Full| if taken < full.limit { Ok(()) } else { Err(full) };
        match viewer {
            Viewer::Operator => below(own, self.of_operators)?,
            Viewer::Tenant(_) => {
                let operators = by_viewer.get(&Viewer::Operator).copied().unwrap_or_default();
                below(own, self.of_tenant)?;
                below(by_viewer.values().sum::<usize>() - operators, self.of_tenants)?;
            }
        }
        by_viewer.insert(viewer, own + 1);
        self.taken.fetch_add(1, Ordering::Relaxed);
        Ok(Subscription { subscriptions: Arc::clone(self), viewer })
    }

    fn give_back(&self, viewer: Viewer) {
        let mut by_viewer = self.by_viewer();
        match by_viewer.get_mut(&viewer) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(by_viewer.remove(&viewer)),
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One who looks; dropping it says that nobody looks through it any more.
#[derive(Debug)]
pub struct Subscription {
    subscriptions: Arc<Subscriptions>,
    viewer: Viewer,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.subscriptions.give_back(self.viewer);
    }
}

#[cfg(test)]
mod tests {
    use base::TenantId;

    use super::*;

    #[test]
    fn one_tenant_does_not_take_the_seats_of_others_nor_tenants_those_of_operators() {
        let subscriptions = Arc::new(Subscriptions::new(&LiveConfig {
            readers_max: 3,
            tenant_readers_max: 2,
            operator_readers_max: 1,
            ..LiveConfig::default()
        }));
        let [first, second, third] = [1, 2, 3].map(|id| Viewer::Tenant(TenantId(id)));
        let refused = |viewer| subscriptions.take(viewer).err().map(|full| full.setting);
        let mut held: Vec<Subscription> =
            [first, first, second].map(|one| subscriptions.take(one).expect("free")).into();
        assert_eq!(refused(first), Some("live.tenant_readers_max"));
        assert_eq!(refused(third), Some("live.readers_max"));
        let operator = subscriptions.take(Viewer::Operator).expect("kept for operators");
        assert_eq!(refused(Viewer::Operator), Some("live.operator_readers_max"));
        assert_eq!(subscriptions.taken(), 4);
        held.remove(0);
        held.push(subscriptions.take(third).expect("given back by the first"));
        drop((held, operator));
        assert_eq!(
            (subscriptions.taken(), subscriptions.by_viewer().len()),
            (0, 0),
            "nothing is kept of who is gone"
        );
    }
}
