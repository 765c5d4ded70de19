//! What tenants may: tokens and money in a day and in a month, requests in a minute, models. On every route.
//!
//! Tokens, and what they cost, are set aside before rows run and settled after. A row is set aside with all it may
//! take, its prompt and the longest answer that was asked for, at the dearest place where it can run; what it took is
//! counted when it ends, and the rest is free again. What all gateways have counted is read from the store now and
//! then, so each of them may let in what others have set aside meanwhile. Must not know the store or HTTP.

mod admission;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use base::{Millis, Money, TenantId};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use scheduler::Usage;
use store::{Computed, TenantLimits, UnixMillis};
use tokio::sync::Notify;

use crate::error::{BudgetUnits, RequestError};

/// What budgets count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetAmount {
    /// Prompts that no cache had, and answers.
    pub tokens: u64,
    pub cost: Money,
}

impl BudgetAmount {
    /// What counts of what rows took: a prompt out of the prefix cache is no token, though it may have a price.
    pub fn of(usage: Usage, cost: Money) -> Self {
        Self { tokens: usage.computed.0.saturating_add(usage.output.0), cost }
    }

    /// Both together.
    pub fn plus(self, more: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(more.tokens), cost: self.cost.saturating_add(more.cost) }
    }

    fn minus(self, less: Self) -> Self {
        Self { tokens: self.tokens.saturating_sub(less.tokens), cost: self.cost.saturating_sub(less.cost) }
    }
}

/// How a tenant stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetStatus {
    /// What it may.
    pub limits: TenantLimits,
    /// Computed today.
    pub day: BudgetAmount,
    /// Computed this month.
    pub month: BudgetAmount,
    /// Set aside for what runs here.
    pub reserved: BudgetAmount,
}

impl BudgetStatus {
    /// Whether this much more is within all bounds.
    fn has_room(&self, asked: BudgetAmount) -> bool {
        self.bounds(asked).all(Bound::has_room)
    }

    /// The bounds that there are, each with what counts towards it.
    fn bounds(&self, asked: BudgetAmount) -> impl Iterator<Item = Bound> {
        use BudgetUnits::{Cost, Tokens};
        let Self { limits, day, month, reserved } = self;
        let of_tokens = |limit, period, max: Option<u64>, used: &BudgetAmount| {
            let counts = [used.tokens, reserved.tokens, asked.tokens];
            max.map(|max| Bound { limit, period, max: Tokens(max), counts: counts.map(Tokens) })
        };
        let of_cost = |limit, period, max: Option<Money>, used: &BudgetAmount| {
            let counts = [used.cost, reserved.cost, asked.cost];
            max.map(|max| Bound { limit, period, max: Cost(max), counts: counts.map(Cost) })
        };
        [
            of_tokens("day_tokens", Period::Day, limits.day_tokens, day),
            of_cost("day_cost", Period::Day, limits.day_cost, day),
            of_tokens("month_tokens", Period::Month, limits.month_tokens, month),
            of_cost("month_cost", Period::Month, limits.month_cost, month),
        ]
        .into_iter()
        .flatten()
    }
}

#[derive(Clone, Copy, Debug)]
enum Period {
    Day,
    Month,
}

/// A bound of a tenant and what counts towards it.
#[derive(Debug)]
struct Bound {
    /// Its name among the tenant's limits.
    limit: &'static str,
    period: Period,
    max: BudgetUnits,
    /// Used, set aside, asked for.
    counts: [BudgetUnits; 3],
}

impl Bound {
    /// Whether what is asked for fits.
    fn has_room(self) -> bool {
        let sum = self.counts.iter().fold(0u64, |sum, count| sum.saturating_add(count.count()));
        sum <= self.max.count()
    }

    /// Refuses what is asked for where it does not fit.
    fn check(self, now: UnixMillis) -> Result<(), RequestError> {
        let Self { limit, period, max, counts: [used, reserved, asked] } = self;
        let (period, retry_after) = match period {
            Period::Day => ("day", until_tomorrow(now)),
            Period::Month => ("month", until_next_month(now)),
        };
        if asked.count() > max.count() {
            let what = format!("a request that may take {asked}");
            let limit = format!("{max}, the tenant's budget of a {period} (`limits.{limit}`)");
            return Err(RequestError::TooLarge { what, limit });
        }
        let sum = used.count().saturating_add(reserved.count()).saturating_add(asked.count());
        if sum <= max.count() {
            return Ok(());
        }
        Err(RequestError::TenantBudget { limit, period, max, used, reserved, asked, retry_after })
    }
}

#[derive(Debug, Default)]
struct TenantCounts {
    limits: TenantLimits,
    /// Counts its requests, where these have a bound.
    requests: Option<DefaultDirectRateLimiter>,
    /// From all gateways.
    stored: Computed,
    /// Counted here and written since the store was last read, or not written yet.
    unread: BudgetAmount,
    /// Of these, those that are written.
    written: BudgetAmount,
    /// Those of them that the store has said, or says now.
    being_read: BudgetAmount,
    reserved: BudgetAmount,
}

impl TenantCounts {
    fn status(&self) -> BudgetStatus {
        let Computed { day_tokens, month_tokens, day_cost, month_cost } = self.stored;
        let day = BudgetAmount { tokens: day_tokens, cost: day_cost };
        let month = BudgetAmount { tokens: month_tokens, cost: month_cost };
        BudgetStatus {
            limits: self.limits.clone(),
            day: day.plus(self.unread),
            month: month.plus(self.unread),
            reserved: self.reserved,
        }
    }

    /// Whether anything bounds what it computes.
    fn has_budget(&self) -> bool {
        let limits = &self.limits;
        let bounds_tokens = limits.day_tokens.is_some() || limits.month_tokens.is_some();
        bounds_tokens || limits.day_cost.is_some() || limits.month_cost.is_some()
    }
}

/// All tenants' budgets, of all models of a process.
#[derive(Debug, Default)]
pub struct Budgets {
    tenants: Mutex<HashMap<TenantId, TenantCounts>>,
    /// Names of the models that are served, once that is known.
    served: OnceLock<Vec<String>>,
    /// Tells that something was given back, or that limits or sums are others.
    changed: Notify,
}

impl Budgets {
    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, TenantCounts>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A row of a tenant has ended.
    pub fn charge(&self, tenant: TenantId, amount: BudgetAmount) {
        let mut tenants = self.tenants();
        let found = tenants.entry(tenant).or_default();
        found.unread = found.unread.plus(amount);
    }

    /// What was charged is in the store now.
    pub fn written(&self, tenant: TenantId, amount: BudgetAmount) {
        let mut tenants = self.tenants();
        let found = tenants.entry(tenant).or_default();
        found.written = found.written.plus(amount);
    }

    /// The store is read now: what is written by now it will say. What is written meanwhile it may have said or not, and
    /// counts until the next time: twice rather than not at all.
    pub fn begin_refresh(&self) {
        for counts in self.tenants().values_mut() {
            counts.being_read = counts.being_read.plus(std::mem::take(&mut counts.written));
        }
    }

    /// Takes what the store has said since the refresh [began](Self::begin_refresh): limits, and sums of those tenants.
    pub fn refresh(&self, found: Vec<(TenantId, TenantLimits, Computed)>) {
        let mut tenants = self.tenants();
        for counts in tenants.values_mut() {
            counts.unread = counts.unread.minus(std::mem::take(&mut counts.being_read));
        }
        let limited: HashSet<TenantId> = found.iter().map(|(tenant, ..)| *tenant).collect();
        for (tenant, limits, stored) in found {
            let counts = tenants.entry(tenant).or_default();
            if limits.minute_requests != counts.limits.minute_requests {
                // Of none at all nobody counts: they are refused by the bound itself.
                let quota = limits.minute_requests.and_then(NonZeroU32::new).map(Quota::per_minute);
                counts.requests = quota.map(RateLimiter::direct);
            }
            (counts.limits, counts.stored) = (limits, stored);
        }
        let nothing = BudgetAmount::default();
        tenants.retain(|tenant, counts| {
            if !limited.contains(tenant) {
                (counts.limits, counts.requests) = (TenantLimits::default(), None);
            }
            limited.contains(tenant) || counts.reserved != nothing || counts.unread != nothing
        });
        drop(tenants);
        self.changed.notify_waiters();
    }

    /// Counts a request of a tenant, or refuses it: so many a minute, some of which may come at once.
    pub fn admit_request(&self, tenant: TenantId) -> Result<(), RequestError> {
        let tenants = self.tenants();
        let Some(found) = tenants.get(&tenant) else { return Ok(()) };
        let Some(max) = found.limits.minute_requests else { return Ok(()) };
        let waits = match &found.requests {
            Some(limiter) => match limiter.check() {
                Ok(()) => return Ok(()),
                Err(early) => early.wait_time_from(DefaultClock::default().now()),
            },
            None => Duration::from_mins(1),
        };
        let retry_after = Millis(u64::try_from(waits.as_millis()).unwrap_or(u64::MAX).max(1));
        Err(RequestError::RateLimit { max, retry_after })
    }

    /// Says which models are served, by their names: a tenant's list may still name one that no longer is. The first
    /// call holds.
    pub fn serves(&self, names: Vec<String>) {
        self.served.get_or_init(|| names);
    }

    /// Refuses a model that a tenant may not use: to it, there is none of that name. The error names those that it may.
    pub fn allows(&self, tenant: TenantId, model: &str) -> Result<(), RequestError> {
        let tenants = self.tenants();
        let models = tenants.get(&tenant).and_then(|found| found.limits.models.as_ref());
        match models {
            Some(models) if models.iter().all(|allowed| allowed != model) => {
                let is_served = |name: &&str| {
                    self.served.get().is_none_or(|served| served.iter().any(|known| known == name))
                };
                Err(RequestError::unknown_model(model, models.iter().map(String::as_str).filter(is_served)))
            }
            _ => Ok(()),
        }
    }

    /// How a tenant stands, as of the last time that the store was read.
    pub fn status(&self, tenant: TenantId) -> BudgetStatus {
        self.tenants().get(&tenant).map(TenantCounts::status).unwrap_or_default()
    }

    /// Whether rows of a tenant that may take so much would ever be let in together.
    pub fn fits_at_once(&self, tenant: TenantId, most: BudgetAmount) -> bool {
        let limits = self.status(tenant).limits;
        BudgetStatus { limits, ..BudgetStatus::default() }.has_room(most)
    }

    /// Whether rows of a tenant that may take so much would be let in now.
    pub fn has_room(&self, tenant: TenantId, most: BudgetAmount) -> bool {
        self.status(tenant).has_room(most)
    }

    /// Sets aside what rows may take at most; `None` for a tenant without a budget. Work that `is_resumed` was let in
    /// before, and is not refused.
    pub fn reserve(
        self: &Arc<Self>,
        tenant: TenantId,
        rows: HashMap<u32, BudgetAmount>,
        now: UnixMillis,
        is_resumed: bool,
    ) -> Result<Option<Arc<BudgetReservation>>, RequestError> {
        let mut tenants = self.tenants();
        let Some(found) = tenants.get_mut(&tenant) else { return Ok(None) };
        // Answers that are known already cost nothing, however much is spent.
        if !found.has_budget() || rows.is_empty() {
            return Ok(None);
        }
        let asked = rows.values().fold(BudgetAmount::default(), |sum, more| sum.plus(*more));
        if !is_resumed {
            found.status().bounds(asked).try_for_each(|bound| bound.check(now))?;
        }
        found.reserved = found.reserved.plus(asked);
        drop(tenants);
        Ok(Some(Arc::new(BudgetReservation { budgets: Arc::clone(self), tenant, rows: Mutex::new(rows) })))
    }

    fn release(&self, tenant: TenantId, amount: BudgetAmount) {
        if let Some(found) = self.tenants().get_mut(&tenant) {
            found.reserved = found.reserved.minus(amount);
        }
        self.changed.notify_waiters();
    }
}

/// What is set aside for rows that have not ended; free again when it is dropped.
#[derive(Debug)]
pub struct BudgetReservation {
    budgets: Arc<Budgets>,
    tenant: TenantId,
    rows: Mutex<HashMap<u32, BudgetAmount>>,
}

impl BudgetReservation {
    fn rows(&self) -> MutexGuard<'_, HashMap<u32, BudgetAmount>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has a part for a row.
    pub(crate) fn holds(&self, row: u32) -> bool {
        self.rows().contains_key(&row)
    }

    /// Its rows go by these numbers from now on, which stand in the order of their places.
    pub(crate) fn renumber(&self, numbers: &[u32]) {
        let mut rows = self.rows();
        let placed = std::mem::take(&mut *rows);
        rows.extend(placed.into_iter().map(|(place, most)| (numbers[place as usize], most)));
    }

    /// A row has ended.
    pub fn release(&self, row: u32) {
        let held = self.rows().remove(&row);
        if let Some(held) = held {
            self.budgets.release(self.tenant, held);
        }
    }

    /// All rows have.
    pub(crate) fn release_all(&self) {
        let held = self.rows().drain().fold(BudgetAmount::default(), |sum, (_, held)| sum.plus(held));
        if held != BudgetAmount::default() {
            self.budgets.release(self.tenant, held);
        }
    }

    /// Holds what another does too, of further rows of the same relQuery.
    pub(crate) fn take_over(&self, other: &Self) {
        let more: Vec<(u32, BudgetAmount)> = other.rows().drain().collect();
        self.rows().extend(more);
    }
}

impl Drop for BudgetReservation {
    fn drop(&mut self) {
        self.release_all();
    }
}

const DAY_MS: u64 = 86_400_000;

/// From then to the end of its day (UTC).
pub fn until_tomorrow(now: UnixMillis) -> Millis {
    Millis(DAY_MS - now.0 % DAY_MS)
}

fn until_next_month(now: UnixMillis) -> Millis {
    // No month has more than 31 days.
    let next = (now.day() + 1..=now.day() + 31).find(|day| store::month_start(*day) == *day);
    Millis(next.unwrap_or(now.day() + 31) * DAY_MS - now.0)
}

#[cfg(test)]
mod tests {
    use base::TokenCount;

    use super::*;

    const TENANT: TenantId = TenantId(7);
    /// 2026-02-27, an hour before midnight.
    const NOW: UnixMillis = UnixMillis(20_511 * DAY_MS + 23 * 3_600_000);

    /// Sets aside rows that take at most 10 tokens each, of 3 billionths.
    fn reserve(
        budgets: &Arc<Budgets>,
        rows: u32,
        is_resumed: bool,
    ) -> Result<Option<Arc<BudgetReservation>>, RequestError> {
        let most = BudgetAmount { tokens: 10, cost: Money(30) };
        budgets.reserve(TENANT, (0..rows).map(|row| (row, most)).collect(), NOW, is_resumed)
    }

    fn took(computed: u64, output: u64) -> BudgetAmount {
        let usage = Usage { computed: TokenCount(computed), output: TokenCount(output), ..Usage::default() };
        BudgetAmount::of(usage, Money(3 * (computed + output)))
    }

    fn tokens(day_tokens: Option<u64>, month_tokens: Option<u64>) -> TenantLimits {
        TenantLimits { day_tokens, month_tokens, ..TenantLimits::default() }
    }

    /// So many tokens of a day and of its month, and what they cost.
    fn computed(day: u64, month: u64) -> Computed {
        Computed {
            day_tokens: day,
            month_tokens: month,
            day_cost: Money(3 * day),
            month_cost: Money(3 * month),
        }
    }

    fn budgets(limits: TenantLimits, stored: Computed) -> Arc<Budgets> {
        let budgets = Arc::<Budgets>::default();
        budgets.refresh(vec![(TENANT, limits, stored)]);
        budgets
    }

    #[test]
    fn rows_are_set_aside_at_their_most_and_settled_at_what_they_took() {
        let budgets = budgets(tokens(Some(40), None), Computed::default());
        let held = reserve(&budgets, 3, false).expect("30 of 40").expect("there is a budget");
        let refused = reserve(&budgets, 2, false).expect_err("50 of 40");
        let RequestError::TenantBudget { limit, period, max, used, reserved, asked, retry_after } = refused
        else {
            panic!("{refused}");
        };
        assert_eq!((limit, period), ("day_tokens", "day"));
        assert_eq!([max, used, reserved, asked], [40, 0, 30, 20].map(BudgetUnits::Tokens));
        assert_eq!(retry_after, Millis(3_600_000), "an hour before midnight");
        budgets.charge(TENANT, took(2, 1));
        held.release(0);
        held.release(0);
        assert_eq!(budgets.status(TENANT).reserved.tokens, 20, "a row counts once");
        reserve(&budgets, 2, false).expect_err("3, 20 and 20 of 40");
        reserve(&budgets, 1, false).expect("3, 20 and 10 of 40");
        drop(held);
        let took = took(2, 1);
        let status = budgets.status(TENANT);
        assert_eq!((status.day, status.month), (took, took));
        assert_eq!(status.reserved, BudgetAmount::default(), "what was let in and dropped is free again");
    }

    #[test]
    fn money_is_set_aside_and_settled_as_tokens_are() {
        let limits = TenantLimits {
            day_cost: Some(Money(100)),
            month_cost: Some(Money(1_000)),
            ..TenantLimits::default()
        };
        let budgets = budgets(limits.clone(), computed(0, 0));
        let held = reserve(&budgets, 2, false).expect("60 of 100").expect("there is a budget");
        let refused = reserve(&budgets, 2, false).expect_err("120 of 100").to_string();
        for part in ["`limits.day_cost`", "0.0000001", "0.00000006 set aside", "in money"] {
            assert!(refused.contains(part), "{refused:?} lacks {part:?}");
        }
        budgets.charge(TENANT, took(3, 1));
        drop(held);
        assert_eq!(budgets.status(TENANT).day.cost, Money(12));
        reserve(&budgets, 2, false).expect("12 and 60 of 100");
        reserve(&budgets, 3, false).expect_err("12 and 90 of 100");
        let error = reserve(&budgets, 4, false).expect_err("120 of 100 never fit");
        assert!(matches!(error, RequestError::TooLarge { .. }), "{error}");
        // Another gateway spent what was left of the month.
        budgets.written(TENANT, took(3, 1));
        budgets.begin_refresh();
        budgets.refresh(vec![(TENANT, limits, computed(4, 325))]);
        let refused = reserve(&budgets, 1, false).expect_err("975 and 30 of a month's 1,000");
        assert!(matches!(refused, RequestError::TenantBudget { limit: "month_cost", .. }), "{refused}");
    }

    #[test]
    fn there_is_room_where_rows_would_be_let_in() {
        let limits = TenantLimits { day_cost: Some(Money(200)), ..tokens(Some(40), Some(90)) };
        let budgets = budgets(limits.clone(), computed(10, 60));
        let most = |tokens: u64, cost: u64| BudgetAmount { tokens, cost: Money(cost) };
        let has_room = |tokens, cost| budgets.has_room(TENANT, most(tokens, cost));
        assert!(budgets.fits_at_once(TENANT, most(40, 200)));
        assert!(!budgets.fits_at_once(TENANT, most(41, 0)) && !budgets.fits_at_once(TENANT, most(0, 201)));
        assert!(has_room(30, 0) && !has_room(31, 0), "10 of a day's 40 are spent");
        let held = reserve(&budgets, 1, false).expect("10 more of 40");
        assert!(has_room(20, 0) && !has_room(21, 0), "and 10 set aside");
        drop(held);
        budgets.refresh(vec![(TENANT, limits, computed(0, 60))]);
        assert!(has_room(30, 200) && !has_room(31, 0) && !has_room(0, 201), "60 of a month's 90 are");
        let other = TenantId(8);
        let all = most(u64::MAX, u64::MAX);
        assert!(budgets.fits_at_once(other, all) && budgets.has_room(other, all));
    }

    #[test]
    fn what_all_gateways_wrote_counts_once() {
        let limits = tokens(Some(100), Some(1_000));
        let budgets = budgets(limits.clone(), computed(50, 900));
        budgets.charge(TENANT, took(20, 10));
        assert_eq!(budgets.status(TENANT).day.tokens, 80);
        budgets.written(TENANT, took(20, 10));
        assert_eq!(budgets.status(TENANT).day.tokens, 80, "the store was not read since");
        budgets.begin_refresh();
        budgets.charge(TENANT, took(6, 1));
        budgets.written(TENANT, took(6, 1));
        budgets.refresh(vec![(TENANT, limits.clone(), computed(85, 935))]);
        let day = BudgetAmount { tokens: 92, cost: Money(276) };
        assert_eq!(
            budgets.status(TENANT).day,
            day,
            "30 and 7 are ours, 5 another's, and 7 were not read yet"
        );
        let refused = reserve(&budgets, 7, false).expect_err("162 of a day's 100").to_string();
        assert!(refused.contains("a day"), "{refused}");
        budgets.begin_refresh();
        budgets.refresh(vec![(TENANT, limits, computed(0, 935))]);
        let refused = reserve(&budgets, 7, false).expect_err("1,005 of a month's 1,000");
        let RequestError::TenantBudget { period, retry_after, .. } = refused else { panic!("{refused}") };
        // The 28th is February's last day.
        assert_eq!((period, retry_after), ("month", Millis(DAY_MS + 3_600_000)));
    }

    #[test]
    fn resumed_work_is_let_in_and_what_never_fits_is_not_told_to_come_back() {
        let budgets = budgets(tokens(Some(25), None), computed(25, 25));
        reserve(&budgets, 1, false).expect_err("nothing is left");
        let held = reserve(&budgets, 1, true).expect("it was let in before").expect("and is counted");
        assert_eq!(budgets.status(TENANT).reserved, BudgetAmount { tokens: 10, cost: Money(30) });
        drop(held);
        let error = reserve(&budgets, 3, false).expect_err("30 of 25");
        assert!(matches!(error, RequestError::TooLarge { .. }), "{error}");
        assert!(reserve(&budgets, 0, false).expect("nothing has to run").is_none());
        budgets.refresh(Vec::new());
        assert!(reserve(&budgets, 3, false).expect("no budget any more").is_none());
    }

    #[test]
    fn requests_are_let_in_as_many_as_a_minute_has() {
        let budgets = budgets(TenantLimits::default(), Computed::default());
        let of_minute = |most| TenantLimits { minute_requests: Some(most), ..TenantLimits::default() };
        budgets.refresh(vec![(TENANT, of_minute(3), Computed::default())]);
        for _ in 0..3 {
            budgets.admit_request(TENANT).expect("three may come at once");
        }
        let refused = budgets.admit_request(TENANT).expect_err("the fourth comes too early");
        let RequestError::RateLimit { max: 3, retry_after } = refused else { panic!("{refused}") };
        assert!(
            (1..=20_000).contains(&retry_after.0),
            "one comes free in a third of a minute: {retry_after}"
        );
        budgets.refresh(vec![(TENANT, of_minute(3), Computed::default())]);
        budgets.admit_request(TENANT).expect_err("a look at the store forgets nothing");
        budgets.admit_request(TenantId(8)).expect("another tenant has no bound");
        budgets.refresh(vec![(TENANT, of_minute(0), Computed::default())]);
        budgets.admit_request(TENANT).expect_err("none at all");
        budgets.refresh(Vec::new());
        budgets.admit_request(TENANT).expect("no bound any more");
    }

    #[test]
    fn models_that_a_tenant_may_not_use_are_not_there_for_it() {
        let limits = TenantLimits { models: Some(vec!["small".into()]), ..TenantLimits::default() };
        let budgets = Budgets::default();
        budgets.refresh(vec![(TENANT, limits, Computed::default())]);
        budgets.allows(TENANT, "small").expect("it may");
        let refused = budgets.allows(TENANT, "large").expect_err("it may not").to_string();
        assert!(refused.contains("`large` does not exist") && refused.contains("small"), "{refused}");
        budgets.allows(TenantId(8), "large").expect("another may use all");
    }

    #[test]
    fn a_model_that_is_served_no_longer_is_not_named_to_a_tenant() {
        let budgets = Budgets::default();
        budgets.serves(vec!["small".into(), "large".into()]);
        let said = |models: &[&str]| {
            let models = models.iter().map(|name| (*name).to_owned()).collect();
            let limits = TenantLimits { models: Some(models), ..TenantLimits::default() };
            budgets.refresh(vec![(TENANT, limits, Computed::default())]);
            budgets.allows(TENANT, "large").expect_err("it may not").to_string()
        };
        assert_eq!(said(&["gone", "small"]), "the model `large` does not exist; served: `small`");
        assert_eq!(said(&["gone"]), "the model `large` does not exist; served: none");
    }
}
