//! What tenants may: tokens in a day and in a month, requests in a minute, models. On every route.
//!
//! Tokens are set aside before rows run and settled after.//! A row is set aside with all it may take, its prompt and the longest answer that was asked for; what it took is
//! counted when it ends, and the rest is free again. What all gateways have counted is read from the store now and
//! then, so each of them may let in what others have set aside meanwhile. Must not know the store or HTTP.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{Millis, TenantId};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use scheduler::Usage;
use store::{Computed, TenantLimits, UnixMillis};

use crate::error::RequestError;

/// How a tenant stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetStatus {
    /// What it may.
    pub limits: TenantLimits,
    /// Computed today.
    pub day: u64,
    /// Computed this month.
    pub month: u64,
    /// Set aside for what runs here.
    pub reserved: u64,
}

#[derive(Debug, Default)]
struct TenantTokens {
    limits: TenantLimits,
    /// Counts its requests, where these have a bound.
    requests: Option<DefaultDirectRateLimiter>,
    /// From all gateways.
    stored: Computed,
    /// Counted here and written since the store was last read, or not written yet.
    unread: u64,
    /// Of these, those that are written.
    written: u64,
    reserved: u64,
}

impl TenantTokens {
    fn status(&self) -> BudgetStatus {
        BudgetStatus {
            limits: self.limits.clone(),
            day: self.stored.day.saturating_add(self.unread),
            month: self.stored.month.saturating_add(self.unread),
            reserved: self.reserved,
        }
    }
}

/// All tenants' budgets, of all models of a process.
#[derive(Debug, Default)]
pub struct Budgets(Mutex<HashMap<TenantId, TenantTokens>>);

impl Budgets {
    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, TenantTokens>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A row of a tenant has ended.
    pub fn charge(&self, tenant: TenantId, usage: Usage) {
        self.tenants().entry(tenant).or_default().unread += counted(usage);
    }

    /// What was charged is in the store now.
    pub fn written(&self, tenant: TenantId, usage: Usage) {
        self.tenants().entry(tenant).or_default().written += counted(usage);
    }

    /// Takes what the store has: limits, and sums of those tenants. What is charged here is in the store, or
    /// charged and not written, while that is read.
    pub fn refresh(&self, found: Vec<(TenantId, TenantLimits, Computed)>) {
        let mut tenants = self.tenants();
        for tokens in tenants.values_mut() {
            tokens.unread = tokens.unread.saturating_sub(std::mem::take(&mut tokens.written));
        }
        let limited: HashSet<TenantId> = found.iter().map(|(tenant, ..)| *tenant).collect();
        for (tenant, limits, stored) in found {
            let tokens = tenants.entry(tenant).or_default();
            if limits.minute_requests != tokens.limits.minute_requests {
                // Of none at all nobody counts: they are refused by the bound itself.
                let quota = limits.minute_requests.and_then(NonZeroU32::new).map(Quota::per_minute);
                tokens.requests = quota.map(RateLimiter::direct);
            }
            (tokens.limits, tokens.stored) = (limits, stored);
        }
        tenants.retain(|tenant, tokens| {
            if !limited.contains(tenant) {
                (tokens.limits, tokens.requests) = (TenantLimits::default(), None);
            }
            limited.contains(tenant) || tokens.reserved > 0 || tokens.unread > 0
        });
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

    /// Refuses a model that a tenant may not use: to it, there is none of that name.
    pub fn allows(&self, tenant: TenantId, model: &str) -> Result<(), RequestError> {
        let tenants = self.tenants();
        let models = tenants.get(&tenant).and_then(|found| found.limits.models.as_ref());
        match models {
            Some(models) if models.iter().all(|allowed| allowed != model) => {
                Err(RequestError::unknown_model(model, models.iter().map(String::as_str)))
            }
            _ => Ok(()),
        }
    }

    /// How a tenant stands, as of the last time that the store was read.
    pub fn status(&self, tenant: TenantId) -> BudgetStatus {
        self.tenants().get(&tenant).map(TenantTokens::status).unwrap_or_default()
    }

    /// Sets aside what rows may take at most; `None` for a tenant without a budget. Work that `is_resumed` was let in
    /// before, and is not refused.
    pub fn reserve(
        self: &Arc<Self>,
        tenant: TenantId,
        rows: HashMap<u32, u64>,
        now: UnixMillis,
        is_resumed: bool,
    ) -> Result<Option<Arc<TokenReservation>>, RequestError> {
        let mut tenants = self.tenants();
        let Some(found) = tenants.get_mut(&tenant) else { return Ok(None) };
        let (of_day, of_month) = (found.limits.day_tokens, found.limits.month_tokens);
        // Answers that are known already cost nothing, however much is spent.
        if of_day.is_none() && of_month.is_none() || rows.is_empty() {
            return Ok(None);
        }
        let asked = rows.values().fold(0, |sum: u64, more| sum.saturating_add(*more));
        let status = found.status();
        if !is_resumed {
            let of_day = (of_day, status.day, "day", until_tomorrow(now));
            let of_month = (of_month, status.month, "month", until_next_month(now));
            for (max, used, period, retry_after) in [of_day, of_month] {
                let Some(max) = max else { continue };
                if asked > max {
                    let what = format!("a request that may take {asked} tokens");
                    return Err(RequestError::TooLarge {
                        what,
                        limit: format!("{max} tokens, the tenant's budget of a {period}"),
                    });
                }
                let reserved = status.reserved;
                if used.saturating_add(reserved).saturating_add(asked) > max {
                    return Err(RequestError::TenantBudget {
                        period,
                        max,
                        used,
                        reserved,
                        asked,
                        retry_after,
                    });
                }
            }
        }
        found.reserved += asked;
        drop(tenants);
        Ok(Some(Arc::new(TokenReservation { budgets: Arc::clone(self), tenant, rows: Mutex::new(rows) })))
    }

    fn release(&self, tenant: TenantId, tokens: u64) {
        if let Some(found) = self.tenants().get_mut(&tenant) {
            found.reserved = found.reserved.saturating_sub(tokens);
        }
    }
}

/// What is set aside for rows that have not ended; free again when it is dropped.
#[derive(Debug)]
pub struct TokenReservation {
    budgets: Arc<Budgets>,
    tenant: TenantId,
    rows: Mutex<HashMap<u32, u64>>,
}

impl TokenReservation {
    fn rows(&self) -> MutexGuard<'_, HashMap<u32, u64>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A row has ended.
    pub(crate) fn release(&self, row: u32) {
        let held = self.rows().remove(&row);
        if let Some(held) = held {
            self.budgets.release(self.tenant, held);
        }
    }

    /// All rows have.
    pub(crate) fn release_all(&self) {
        let held: u64 = self.rows().drain().map(|(_, held)| held).sum();
        if held > 0 {
            self.budgets.release(self.tenant, held);
        }
    }

    /// Holds what another does too, of further rows of the same relQuery.
    pub(crate) fn take_over(&self, other: &Self) {
        let more: Vec<(u32, u64)> = other.rows().drain().collect();
        self.rows().extend(more);
    }
}

impl Drop for TokenReservation {
    fn drop(&mut self) {
        self.release_all();
    }
}

/// What of a usage counts: a prompt out of the prefix cache is free.
fn counted(usage: Usage) -> u64 {
    usage.computed.0.saturating_add(usage.output.0)
}

const DAY_MS: u64 = 86_400_000;

fn until_tomorrow(now: UnixMillis) -> Millis {
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

    /// Sets aside rows that take at most 10 tokens each.
    fn reserve(
        budgets: &Arc<Budgets>,
        rows: u32,
        is_resumed: bool,
    ) -> Result<Option<Arc<TokenReservation>>, RequestError> {
        budgets.reserve(TENANT, (0..rows).map(|row| (row, 10)).collect(), NOW, is_resumed)
    }

    fn took(computed: u64, output: u64) -> Usage {
        Usage { computed: TokenCount(computed), output: TokenCount(output), ..Usage::default() }
    }

    fn tokens(day_tokens: Option<u64>, month_tokens: Option<u64>) -> TenantLimits {
        TenantLimits { day_tokens, month_tokens, ..TenantLimits::default() }
    }

    fn budgets(day: Option<u64>, month: Option<u64>, stored: Computed) -> Arc<Budgets> {
        let budgets = Arc::<Budgets>::default();
        budgets.refresh(vec![(TENANT, tokens(day, month), stored)]);
        budgets
    }

    #[test]
    fn rows_are_set_aside_at_their_most_and_settled_at_what_they_took() {
        let budgets = budgets(Some(40), None, Computed::default());
        let held = reserve(&budgets, 3, false).expect("30 of 40").expect("there is a budget");
        let refused = reserve(&budgets, 2, false).expect_err("50 of 40");
        let RequestError::TenantBudget { period, max, used, reserved, asked, retry_after } = refused else {
            panic!("{refused}");
        };
        assert_eq!((period, max, used, reserved, asked), ("day", 40, 0, 30, 20));
        assert_eq!(retry_after, Millis(3_600_000), "an hour before midnight");
        budgets.charge(TENANT, took(2, 1));
        held.release(0);
        held.release(0);
        assert_eq!(budgets.status(TENANT).reserved, 20, "a row counts once");
        reserve(&budgets, 2, false).expect_err("3, 20 and 20 of 40");
        reserve(&budgets, 1, false).expect("3, 20 and 10 of 40");
        drop(held);
        assert_eq!(budgets.status(TENANT), BudgetStatus { day: 3, month: 3, ..budgets.status(TENANT) });
        assert_eq!(budgets.status(TENANT).reserved, 0, "what was let in and dropped is free again");
    }

    #[test]
    fn what_all_gateways_wrote_counts_once() {
        let budgets = budgets(Some(100), Some(1_000), Computed { day: 50, month: 900 });
        budgets.charge(TENANT, took(20, 10));
        assert_eq!(budgets.status(TENANT).day, 80);
        budgets.written(TENANT, took(20, 10));
        assert_eq!(budgets.status(TENANT).day, 80, "the store was not read since");
        let limits = tokens(Some(100), Some(1_000));
        budgets.refresh(vec![(TENANT, limits.clone(), Computed { day: 85, month: 935 })]);
        assert_eq!(budgets.status(TENANT).day, 85, "30 are ours and 5 another gateway's");
        let refused = reserve(&budgets, 7, false).expect_err("155 of a day's 100").to_string();
        assert!(refused.contains("a day"), "{refused}");
        budgets.refresh(vec![(TENANT, limits, Computed { day: 0, month: 935 })]);
        let refused = reserve(&budgets, 7, false).expect_err("1,005 of a month's 1,000");
        let RequestError::TenantBudget { period, retry_after, .. } = refused else { panic!("{refused}") };
        // The 28th is February's last day.
        assert_eq!((period, retry_after), ("month", Millis(DAY_MS + 3_600_000)));
    }

    #[test]
    fn resumed_work_is_let_in_and_what_never_fits_is_not_told_to_come_back() {
        let budgets = budgets(Some(25), None, Computed { day: 25, month: 25 });
        reserve(&budgets, 1, false).expect_err("nothing is left");
        let held = reserve(&budgets, 1, true).expect("it was let in before").expect("and is counted");
        assert_eq!(budgets.status(TENANT).reserved, 10);
        drop(held);
        let error = reserve(&budgets, 3, false).expect_err("30 of 25");
        assert!(matches!(error, RequestError::TooLarge { .. }), "{error}");
        assert!(reserve(&budgets, 0, false).expect("nothing has to run").is_none());
        budgets.refresh(Vec::new());
        assert!(reserve(&budgets, 3, false).expect("no budget any more").is_none());
    }

    #[test]
    fn requests_are_let_in_as_many_as_a_minute_has() {
        let budgets = budgets(None, None, Computed::default());
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
}
