//! Fair shares between tenants with bounded lag (virtual token counters, arXiv 2401.00588, in machine
//! time instead of tokens).
//!
//! Each tenant has a counter of the machine time it was served, divided by its weight. While rows of
//! several tenants wait, those go last that are ahead of one of the others by more than the lag and that one's
//! waiting work. The order by work decides within that, so a tenant that asks for its share or less never
//! notices, and a flood delays others by no more than the lag, their own work and its share explain.
//!
//! Why the waiting work: a relQuery is of use when it is done, so half of the machine from the start is worth
//! less to a tenant with an hour of work than it costs one with seconds. What it is behind by is made up for before
//! it has waited for as long as it works; from then on it has its share.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use base::{Nanos, TenantId};

use crate::priority::RelQueryKey;

/// Machine time per weight: ns times a thousand.
type Service = u128;

/// One tenant.
#[derive(Clone, Debug)]
struct Tenant {
    /// Thousandths.
    weight: u32,
    service: Service,
    /// RelQueries held.
    held: u32,
    /// Those with waiting rows.
    waiting: BTreeSet<RelQueryKey>,
    /// Machine time that these need.
    work: u128,
}

impl Tenant {
    /// Nobody may be served ahead of this, and of the lag, while it waits.
    fn allows(&self) -> Service {
        self.service + scaled(self.work, self.weight)
    }
}

/// Machine time, ns, at a weight in thousandths.
fn scaled(time: u128, weight: u32) -> Service {
    time * 1_000_000 / u128::from(weight)
}

/// Idle tenants whose counters are remembered.
const IDLE_MAX: usize = 4_096;

/// All tenants that hold relQueries or are still ahead of others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenants {
    by_id: BTreeMap<TenantId, Tenant>,
    /// Those with waiting rows, least served first.
    active: BTreeSet<(Service, TenantId)>,
    /// The same in the order of what they allow others.
    allowing: BTreeSet<(Service, TenantId)>,
    pace: Pace,
}

/// What steps took, over what the model said: work that waits is counted as it will be charged.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    modelled: u128,
    measured: u128,
}

/// Modelled time, ns, after which older steps count half.
const PACE_WINDOW: u128 = 60_000_000_000;

impl Pace {
    fn add(&mut self, modelled: u128, measured: Nanos) {
        self.modelled += modelled;
        self.measured += u128::from(measured.0);
        if self.modelled > PACE_WINDOW {
            (self.modelled, self.measured) = (self.modelled / 2, self.measured / 2);
        }
    }

    /// The time that modelled work takes; as modelled while nothing has been measured.
    fn time(&self, work: Nanos) -> Nanos {
        if self.modelled == 0 {
            return work;
        }
        let time = u128::from(work.0).saturating_mul(self.measured) / self.modelled;
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

impl Tenants {
    /// A relQuery arrives. A tenant that was idle cannot have saved up: it starts where the least served
    /// waiting one stands, or where it stood if that is further.
    pub(crate) fn join(&mut self, id: TenantId, weight: u32) {
        let least = self.active.first().map_or(0, |(service, _)| *service);
        let fresh = Tenant { weight, service: least, held: 0, waiting: BTreeSet::new(), work: 0 };
        let tenant = self.by_id.entry(id).or_insert(fresh);
        if tenant.held == 0 {
            tenant.service = tenant.service.max(least);
        }
        tenant.held += 1;
        self.change(id, |tenant| tenant.weight = weight.max(1));
    }

    /// A relQuery is done.
    pub(crate) fn leave(&mut self, id: TenantId) {
        let Some(tenant) = self.by_id.get_mut(&id) else { return };
        tenant.held -= 1;
        if self.by_id.len() > IDLE_MAX || self.active.is_empty() {
            let least = self.active.first().map_or(Service::MAX, |(service, _)| *service);
            self.by_id.retain(|_, tenant| tenant.held > 0 || tenant.service > least);
        }
    }

    /// The place of a relQuery among the waiting ones has changed.
    pub(crate) fn place(&mut self, id: TenantId, old: Option<RelQueryKey>, new: Option<RelQueryKey>) {
        let Some(tenant) = self.by_id.get_mut(&id) else { return };
        let did_wait = !tenant.waiting.is_empty();
        if let Some(old) = old {
            tenant.waiting.remove(&old);
        }
        tenant.waiting.extend(new);
        // Which of its relQueries wait moves the tenant nowhere; whether any does lists it.
        match (did_wait, !tenant.waiting.is_empty()) {
            (false, true) => {
                self.active.insert((tenant.service, id));
                self.allowing.insert((tenant.allows(), id));
            }
            (true, false) => {
                self.active.remove(&(tenant.service, id));
                self.allowing.remove(&(tenant.allows(), id));
            }
            _ => {}
        }
    }

    /// The places of all waiting relQueries have changed, those of each tenant among each other: these are the new ones.
    pub(crate) fn place_all(&mut self, mut keys: Vec<(TenantId, RelQueryKey)>) {
        keys.sort_unstable();
        for own in keys.chunk_by(|(one, _), (other, _)| one == other) {
            if let Some(tenant) = own.first().and_then(|(id, _)| self.by_id.get_mut(id)) {
                tenant.waiting = own.iter().map(|(_, key)| *key).collect();
            }
        }
    }

    /// The work of a waiting relQuery has changed.
    pub(crate) fn wait_for(&mut self, id: TenantId, old: Nanos, new: Nanos) {
        if old != new {
            self.change(id, |tenant| {
                tenant.work = (tenant.work + u128::from(new.0)).saturating_sub(u128::from(old.0));
            });
        }
    }

    /// The tenant was served for this long.
    pub(crate) fn charge(&mut self, id: TenantId, time: Nanos) {
        self.change(id, |tenant| tenant.service += scaled(time.0.into(), tenant.weight));
    }

    /// A step took `measured`, of which the model said `modelled` ns.
    pub(crate) fn measured(&mut self, modelled: u128, measured: Nanos) {
        self.pace.add(modelled, measured);
    }

    /// The time that modelled work takes, as measured so far.
    pub(crate) fn time_of(&self, work: Nanos) -> Nanos {
        self.pace.time(work)
    }

    /// Changes a tenant and its places among the waiting ones.
    fn change(&mut self, id: TenantId, change: impl FnOnce(&mut Tenant)) {
        let Some(tenant) = self.by_id.get_mut(&id) else { return };
        if !tenant.waiting.is_empty() {
            self.active.remove(&(tenant.service, id));
            self.allowing.remove(&(tenant.allows(), id));
        }
        change(tenant);
        if !tenant.waiting.is_empty() {
            self.active.insert((tenant.service, id));
            self.allowing.insert((tenant.allows(), id));
        }
    }

    /// The first `most` waiting relQueries, in each class those of tenants that are not too far ahead before the
    /// others; `None` where none is and the order by key is the whole truth.
    pub(crate) fn order(&self, lag: Nanos, most: usize) -> Option<Vec<RelQueryKey>> {
        let (least, (last, _)) = (self.allowing.first()?.0, self.active.last()?);
        let bound = least + u128::from(lag.0) * 1_000;
        if *last <= bound {
            return None;
        }
        let first_ahead = (bound + 1, TenantId(0));
        let mut keys = self.merge(self.active.range(..first_ahead), most);
        keys.extend(self.merge(self.active.range(first_ahead..), most));
        // A class comes before another whoever asks.
        keys.sort_by_key(|key| key.class);
        keys.truncate(most);
        Some(keys)
    }

    /// The first keys of several tenants.
    fn merge<'a>(
        &'a self,
        tenants: impl Iterator<Item = &'a (Service, TenantId)>,
        most: usize,
    ) -> Vec<RelQueryKey> {
        let mut queues: Vec<_> =
            tenants.filter_map(|(_, id)| self.by_id.get(id)).map(|tenant| tenant.waiting.iter()).collect();
        let mut heads: BinaryHeap<Reverse<(RelQueryKey, usize)>> = BinaryHeap::new();
        for (number, queue) in queues.iter_mut().enumerate() {
            heads.extend(queue.next().map(|key| Reverse((*key, number))));
        }
        let mut keys = Vec::new();
        while let Some(Reverse((key, number))) = heads.pop().filter(|_| keys.len() < most) {
            keys.push(key);
            heads.extend(queues[number].next().map(|key| Reverse((*key, number))));
        }
        keys
    }

    /// The sets agree with each other; `waiting` relQueries wait.
    pub(crate) fn check(&self, waiting: usize) -> Result<(), String> {
        let listed: usize = self.by_id.values().map(|tenant| tenant.waiting.len()).sum();
        if listed != waiting {
            return Err(format!("tenants list {listed} waiting relQueries of {waiting}"));
        }
        let active = self.by_id.iter().filter(|(_, tenant)| !tenant.waiting.is_empty());
        let places: BTreeSet<_> = active.map(|(id, tenant)| (tenant.service, *id)).collect();
        if places != self.active {
            return Err("the waiting tenants are not those in order".into());
        }
        let active = self.by_id.iter().filter(|(_, tenant)| !tenant.waiting.is_empty());
        let places: BTreeSet<_> = active.map(|(id, tenant)| (tenant.allows(), *id)).collect();
        if places != self.allowing {
            return Err("the waiting tenants are not those in order of what they allow".into());
        }
        if self.by_id.values().any(|tenant| tenant.waiting.is_empty() && tenant.work > 0) {
            return Err("a tenant waits for the work of no relQuery".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base::{RelQueryId, ServiceClass, Time};

    use super::*;

    fn key(priority: u64) -> RelQueryKey {
        RelQueryKey {
            class: ServiceClass::Interactive,
            is_on_time: true,
            priority,
            arrival: Time(0),
            id: RelQueryId(priority),
        }
    }

    fn order(tenants: &Tenants, lag: u64) -> Option<Vec<u64>> {
        Some(tenants.order(Nanos(lag), 10)?.iter().map(|key| key.priority).collect())
    }

    /// How far ahead of the least served waiting tenant this one is, ns of the machine at its weight.
    fn lead(tenants: &Tenants, id: TenantId) -> Nanos {
        let (Some(tenant), Some((least, _))) = (tenants.by_id.get(&id), tenants.active.first()) else {
            return Nanos(0);
        };
        Nanos(u64::try_from(tenant.service.saturating_sub(*least) / 1_000).unwrap_or(u64::MAX))
    }

    #[test]
    fn a_tenant_ahead_by_more_than_the_lag_goes_last() {
        let mut tenants = Tenants::default();
        let (flood, other) = (TenantId(1), TenantId(2));
        for priority in [1, 2, 3] {
            tenants.join(flood, 1_000);
            tenants.place(flood, None, Some(key(priority)));
        }
        tenants.join(other, 1_000);
        tenants.place(other, None, Some(key(9)));
        tenants.charge(flood, Nanos(100));
        assert_eq!(order(&tenants, 100), None, "within the lag, work decides");
        tenants.charge(flood, Nanos(1));
        assert_eq!(order(&tenants, 100), Some(vec![9, 1, 2, 3]));
        assert_eq!(lead(&tenants, flood), Nanos(101));
        tenants.charge(other, Nanos(1));
        assert_eq!(order(&tenants, 100), None);
        assert_eq!(tenants.check(4), Ok(()));
    }

    #[test]
    fn places_that_change_all_at_once_are_those_that_change_one_by_one() {
        let mut tenants = Tenants::default();
        let (flood, other) = (TenantId(1), TenantId(2));
        for (tenant, priorities) in [(flood, [1, 2, 3]), (other, [7, 8, 9])] {
            for priority in priorities {
                tenants.join(tenant, 1_000);
                tenants.place(tenant, None, Some(key(priority)));
            }
        }
        tenants.charge(flood, Nanos(101));
        // All but two have another priority by now.
        let moved = [(flood, 3, 30), (other, 9, 5), (flood, 1, 40), (other, 7, 6)];
        let mut one_by_one = tenants.clone();
        for (tenant, old, new) in moved {
            one_by_one.place(tenant, Some(key(old)), Some(key(new)));
        }
        let now = [(flood, 30), (other, 8), (other, 5), (flood, 2), (flood, 40), (other, 6)];
        tenants.place_all(now.map(|(tenant, priority)| (tenant, key(priority))).into());
        assert_eq!(order(&tenants, 100), Some(vec![5, 6, 8, 2, 30, 40]));
        assert_eq!(order(&tenants, 100), order(&one_by_one, 100));
        assert_eq!(tenants.check(6), Ok(()));
    }

    #[test]
    fn weights_scale_what_service_counts() {
        let mut tenants = Tenants::default();
        let (heavy, light) = (TenantId(1), TenantId(2));
        tenants.join(heavy, 3_000);
        tenants.place(heavy, None, Some(key(1)));
        tenants.join(light, 1_000);
        tenants.place(light, None, Some(key(2)));
        tenants.charge(heavy, Nanos(300));
        assert_eq!(lead(&tenants, heavy), Nanos(100));
    }

    #[test]
    fn an_idle_tenant_saves_nothing_up_and_a_leader_keeps_its_lead() {
        let mut tenants = Tenants::default();
        let (busy, idle) = (TenantId(1), TenantId(2));
        tenants.join(busy, 1_000);
        tenants.place(busy, None, Some(key(1)));
        tenants.charge(busy, Nanos(5_000));
        tenants.join(idle, 1_000);
        tenants.place(idle, None, Some(key(2)));
        assert_eq!(lead(&tenants, busy), Nanos(0), "they start level");
        tenants.charge(busy, Nanos(700));
        tenants.place(busy, Some(key(1)), None);
        tenants.leave(busy);
        tenants.join(busy, 1_000);
        tenants.place(busy, None, Some(key(3)));
        assert_eq!(lead(&tenants, busy), Nanos(700));
    }

    #[test]
    fn work_waits_in_the_time_that_steps_take_whatever_the_model_says() {
        let mut tenants = Tenants::default();
        assert_eq!(tenants.time_of(Nanos(700)), Nanos(700), "nothing is known");
        tenants.measured(2_500, Nanos(100));
        assert_eq!(tenants.time_of(Nanos(700)), Nanos(28));
        for _ in 0..200 {
            tenants.measured(1_000_000_000, Nanos(2_000_000_000));
        }
        assert_eq!(tenants.time_of(Nanos(700)).0 / 10, 139, "what was long ago fades");
    }

    #[test]
    fn who_has_much_to_do_waits_for_as_long_before_it_has_its_share() {
        let mut tenants = Tenants::default();
        let (quick, heavy) = (TenantId(1), TenantId(2));
        for (tenant, priority) in [(quick, 1), (heavy, 9)] {
            tenants.join(tenant, 1_000);
            tenants.place(tenant, None, Some(key(priority)));
        }
        tenants.wait_for(heavy, Nanos(0), Nanos(700));
        tenants.charge(quick, Nanos(800));
        assert_eq!(order(&tenants, 100), None, "within the lag and the other's work");
        tenants.charge(quick, Nanos(1));
        assert_eq!(order(&tenants, 100), Some(vec![9, 1]));
        tenants.wait_for(heavy, Nanos(700), Nanos(750));
        assert_eq!(order(&tenants, 100), None);
        assert_eq!(tenants.check(2), Ok(()));
    }
}
