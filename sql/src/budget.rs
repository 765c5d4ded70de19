//! What statements may compute: tokens and calls of one statement, and of a tenant's day.
//!
//! A call's most is set aside before it runs, and what it took is counted when it has run: no limit is ever
//! passed, however many calls are under way. Nearly spent, a budget lets in as many as surely fit, and more
//! as others turn out shorter than they might have been. Of a day that has a limit, whoever keeps its sum counts
//! what is set aside before the calls run ([`Reservation::hold`]), and is told afterwards what they did not take: a
//! server that is killed leaves too much in the sum, never too little. Must not know who keeps the sums, nor clocks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use datafusion::common::DataFusionError;
use tokio::sync::Notify;

/// What was computed; answers that were known cost nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComputedCalls {
    /// Tokens of prompts and answers.
    pub tokens: u64,
    /// Calls of a model.
    pub calls: u64,
}

impl ComputedCalls {
    /// One call of so many tokens.
    pub fn one(tokens: u64) -> Self {
        Self { tokens, calls: 1 }
    }

    fn add(&mut self, more: Self) {
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.calls = self.calls.saturating_add(more.calls);
    }

    fn remove(&mut self, less: Self) {
        *self = self.beyond(less);
    }

    /// What it is more than this.
    fn beyond(self, less: Self) -> Self {
        Self { tokens: self.tokens.saturating_sub(less.tokens), calls: self.calls.saturating_sub(less.calls) }
    }
}

/// What the kept sum of a day is still to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnwrittenCalls {
    /// It has too little by this.
    pub more: ComputedCalls,
    /// It has too much by this: it was set aside there, and not computed.
    pub less: ComputedCalls,
}

/// A limit, and what whoever sets it calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLimit {
    /// Of the setting: `sql.budgets.day_tokens_max`.
    pub name: String,
    pub max: u64,
}

/// The most that may be computed; `None`: any amount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Tokens of prompts and answers.
    pub tokens: Option<BudgetLimit>,
    /// Calls of a model.
    pub calls: Option<BudgetLimit>,
}

/// Why a call does not run: a limit that it could pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{limit} is {max}: {who} computed {computed} {unit}, {} are left, and the next call may take {next}",
    .max.saturating_sub(*.computed)
)]
pub struct BudgetSpent {
    limit: String,
    max: u64,
    who: &'static str,
    computed: u64,
    unit: &'static str,
    next: u64,
}

/// Whose budget a statement's day is.
const TODAYS: &str = "today's statements have";
/// What most budgets count.
const TOKENS: &str = "tokens";

impl BudgetSpent {
    /// Of a session's bound on tokens, which a statement has reached by what no call of a model took.
    pub fn of_session(max: u64, computed: u64) -> Self {
        let limit = "relserve.max_tokens".to_owned();
        Self { limit, max, who: "the statement has", computed, unit: TOKENS, next: 1 }
    }

    /// The spent budget that ended a statement, if that is its error.
    pub fn of(error: &DataFusionError) -> Option<&Self> {
        match error.find_root() {
            DataFusionError::External(cause) => cause.downcast_ref(),
            _ => None,
        }
    }

    /// Whether it is anew on another day.
    pub fn is_of_day(&self) -> bool {
        self.who == TODAYS
    }

    /// Whether it counts tokens, not calls.
    pub fn is_of_tokens(&self) -> bool {
        self.unit == TOKENS
    }
}

/// Whether a call may run.
#[derive(Debug, PartialEq, Eq)]
enum CallAdmission {
    Now,
    /// Once calls that are under way turn out shorter than they might be.
    Later,
    Never(BudgetSpent),
}

/// What was computed, and what calls under way may take.
#[derive(Clone, Copy, Debug, Default)]
struct Balance {
    computed: ComputedCalls,
    reserved: ComputedCalls,
}

impl Balance {
    fn admission(&self, limits: &BudgetLimits, who: &'static str, call: ComputedCalls) -> CallAdmission {
        let units = [
            (&limits.tokens, TOKENS, self.computed.tokens, self.reserved.tokens, call.tokens),
            (&limits.calls, "calls", self.computed.calls, self.reserved.calls, call.calls),
        ];
        let mut admission = CallAdmission::Now;
        for (limit, unit, computed, reserved, next) in units {
            let Some(BudgetLimit { name, max }) = limit else { continue };
            let least = computed.saturating_add(next);
            if least > *max {
                let limit = name.clone();
                return CallAdmission::Never(BudgetSpent { limit, max: *max, who, computed, unit, next });
            }
            if least.saturating_add(reserved) > *max {
                admission = CallAdmission::Later;
            }
        }
        admission
    }
}

/// A tenant's limits, and what it has computed today; its sessions share it.
pub struct TenantBudget {
    statement: BudgetLimits,
    day: BudgetLimits,
    today: Box<dyn Fn() -> u64 + Send + Sync>,
    state: Mutex<DayBalance>,
    settled: Notify,
}

#[derive(Debug, Default)]
struct DayBalance {
    day: u64,
    balance: Balance,
    /// What the kept sum of this day has of calls under way.
    held: ComputedCalls,
    /// What nobody has kept yet, by day.
    unwritten: BTreeMap<u64, UnwrittenCalls>,
}

impl DayBalance {
    /// The sum that is kept of a day, of all servers.
    fn kept(&mut self, day: u64, sum: ComputedCalls) {
        if self.day == day {
            let UnwrittenCalls { more, mut less } = self.unwritten.get(&day).copied().unwrap_or_default();
            less.add(self.held);
            let mut computed = sum;
            computed.add(more);
            self.balance.computed = computed.beyond(less);
        }
    }

    /// A call is over that was set aside.
    fn settle(&mut self, call: ReservedCall, took: ComputedCalls) {
        self.balance.reserved.remove(call.most);
        let day = call.held.unwrap_or(self.day);
        let (mut more, mut less) = (took, ComputedCalls::default());
        if call.held.is_some() {
            (more, less) = (took.beyond(call.most), call.most.beyond(took));
        }
        if day == self.day {
            self.balance.computed.add(took);
            if call.held.is_some() {
                self.held.remove(call.most);
            }
        }
        if more != less {
            let unwritten = self.unwritten.entry(day).or_default();
            unwritten.more.add(more);
            unwritten.less.add(less);
        }
    }
}

impl fmt::Debug for TenantBudget {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { statement, day, .. } = self;
        f.debug_struct("TenantBudget").field("statement", statement).field("day", day).finish_non_exhaustive()
    }
}

impl Default for TenantBudget {
    fn default() -> Self {
        Self::new(BudgetLimits::default(), BudgetLimits::default(), || 0)
    }
}

impl TenantBudget {
    /// Limits of each statement and of a day; `today` numbers days.
    pub fn new(
        statement: BudgetLimits,
        day: BudgetLimits,
        today: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        let state = Mutex::new(DayBalance { day: today(), ..DayBalance::default() });
        Self { statement, day, today: Box::new(today), state, settled: Notify::new() }
    }

    /// Whether a day has limits: then what others have spent of it matters.
    pub fn limits_days(&self) -> bool {
        self.day != BudgetLimits::default()
    }

    /// The state of now: what a day had is over with it, but for what runs.
    fn state(&self) -> MutexGuard<'_, DayBalance> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let today = (self.today)();
        if state.day != today {
            state.day = today;
            state.balance.computed = ComputedCalls::default();
            state.held = ComputedCalls::default();
        }
        state
    }

    /// What the kept sums are to be told since this was asked, by day: for whoever keeps them.
    pub fn take_unwritten(&self) -> BTreeMap<u64, UnwrittenCalls> {
        std::mem::take(&mut self.state().unwritten)
    }

    /// Takes back what could not be kept.
    pub fn put_back(&self, day: u64, unwritten: UnwrittenCalls) {
        let mut state = self.state();
        let back = state.unwritten.entry(day).or_default();
        back.more.add(unwritten.more);
        back.less.add(unwritten.less);
    }

    /// The sum that is kept of a day, of all servers.
    pub fn kept(&self, day: u64, sum: ComputedCalls) {
        self.state().kept(day, sum);
    }
}

/// What one statement may still compute.
#[derive(Debug)]
pub struct StatementBudget {
    /// Of the session's own settings.
    session: BudgetLimits,
    tenant: Arc<TenantBudget>,
    balance: Mutex<Balance>,
    is_begun: AtomicBool,
    begun: Notify,
}

impl StatementBudget {
    /// A statement that has computed nothing, under limits of its session and of its tenant.
    pub fn new(session: BudgetLimits, tenant: Arc<TenantBudget>) -> Arc<Self> {
        let (is_begun, begun) = (AtomicBool::new(false), Notify::new());
        Arc::new(Self { session, tenant, balance: Mutex::default(), is_begun, begun })
    }

    /// Rows of it are let in. True: the first.
    pub fn begin(&self) -> bool {
        let is_first = !self.is_begun.swap(true, Ordering::SeqCst);
        if is_first {
            self.begun.notify_waiters();
        }
        is_first
    }

    /// Waits until rows of it are let in: no budget has refused it so far.
    pub async fn until_begun(&self) {
        let mut begun = std::pin::pin!(self.begun.notified());
        begun.as_mut().enable();
        if !self.is_begun.load(Ordering::SeqCst) {
            begun.await;
        }
    }

    fn balance(&self) -> MutexGuard<'_, Balance> {
        self.balance.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether anything bounds it: then it matters which answers are known.
    pub fn is_limited(&self) -> bool {
        let unlimited = BudgetLimits::default();
        self.session != unlimited || self.tenant.statement != unlimited || self.tenant.limits_days()
    }

    /// Sets aside what rows may take at most, nothing of those whose answers are known: the first that fit,
    /// one at least. Waits while none fits and calls that are under way may turn out shorter.
    ///
    /// # Errors
    /// The limit that the next call could pass.
    pub async fn reserve(self: &Arc<Self>, rows: &[ComputedCalls]) -> Result<Reservation, BudgetSpent> {
        loop {
            let settled = self.tenant.settled.notified();
            let mut settled = std::pin::pin!(settled);
            settled.as_mut().enable();
            let reserved = self.reserve_now(rows)?;
            if reserved > 0 || rows.is_empty() {
                let rows = rows[..reserved].iter().map(|most| Some(ReservedCall { most: *most, held: None }));
                let rows = rows.collect();
                return Ok(Reservation { budget: Arc::clone(self), rows });
            }
            settled.await;
        }
    }

    fn reserve_now(&self, rows: &[ComputedCalls]) -> Result<usize, BudgetSpent> {
        let (mut own, mut day) = (self.balance(), self.tenant.state());
        for (place, call) in rows.iter().copied().enumerate() {
            let admissions = [
                own.admission(&self.session, "the statement has", call),
                own.admission(&self.tenant.statement, "the statement has", call),
                day.balance.admission(&self.tenant.day, TODAYS, call),
            ];
            for admission in admissions {
                match admission {
                    CallAdmission::Now => {}
                    CallAdmission::Never(spent) if place == 0 => return Err(spent),
                    CallAdmission::Later | CallAdmission::Never(_) => return Ok(place),
                }
            }
            own.reserved.add(call);
            day.balance.reserved.add(call);
        }
        Ok(rows.len())
    }

    fn settle(&self, call: ReservedCall, computed: Option<u64>) {
        let took = computed.map(ComputedCalls::one).unwrap_or_default();
        let (mut own, mut day) = (self.balance(), self.tenant.state());
        own.reserved.remove(call.most);
        own.computed.add(took);
        day.settle(call, took);
        drop((own, day));
        self.tenant.settled.notify_waiters();
    }
}

/// What is set aside for a row.
#[derive(Clone, Copy, Debug)]
struct ReservedCall {
    most: ComputedCalls,
    /// The day whose kept sum has it already.
    held: Option<u64>,
}

/// What is set aside for rows; given back when it is dropped, but for what was settled.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<StatementBudget>,
    /// Of each row; `None` once it is settled.
    rows: Vec<Option<ReservedCall>>,
}

impl Reservation {
    /// How many rows it is for.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// What is set aside of all of them.
    pub fn most(&self) -> ComputedCalls {
        let mut sum = ComputedCalls::default();
        self.rows.iter().flatten().for_each(|call| sum.add(call.most));
        sum
    }

    /// Gives back what is set aside for all but the first of the rows.
    pub fn keep(&mut self, count: usize) {
        for call in self.rows.drain(count.min(self.rows.len())..).flatten() {
            self.budget.settle(call, None);
        }
    }

    /// What is set aside is in the kept sum of a day, which is this now.
    pub fn hold(&mut self, day: u64, sum: ComputedCalls) {
        let most = self.most();
        let mut state = self.budget.tenant.state();
        if state.day == day {
            state.held.add(most);
        }
        self.rows.iter_mut().flatten().for_each(|call| call.held = Some(day));
        state.kept(day, sum);
    }

    /// The same, one for each row.
    pub fn into_rows(mut self) -> Vec<Self> {
        let rows = std::mem::take(&mut self.rows).into_iter();
        rows.map(|row| Self { budget: Arc::clone(&self.budget), rows: vec![row] }).collect()
    }

    /// A row is over: it computed so many tokens, or nothing where its answer was known or it never ran.
    pub fn settle(&mut self, row: usize, computed: Option<u64>) {
        if let Some(reserved) = self.rows.get_mut(row).and_then(Option::take) {
            self.budget.settle(reserved, computed);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.keep(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use futures_util::FutureExt as _;

    use super::*;

    fn limits(tokens: Option<u64>, calls: Option<u64>) -> BudgetLimits {
        let limit = |name: &str, max: Option<u64>| max.map(|max| BudgetLimit { name: name.to_owned(), max });
        BudgetLimits { tokens: limit("tokens_max", tokens), calls: limit("calls_max", calls) }
    }

    fn tenant(day: BudgetLimits, today: &Arc<AtomicU64>) -> Arc<TenantBudget> {
        let today = Arc::clone(today);
        Arc::new(TenantBudget::new(BudgetLimits::default(), day, move || today.load(Ordering::Relaxed)))
    }

    /// What is reserved at once; `None` where it must wait.
    fn now(budget: &Arc<StatementBudget>, calls: &[u64]) -> Option<Result<Reservation, String>> {
        let calls: Vec<ComputedCalls> = calls.iter().copied().map(ComputedCalls::one).collect();
        let reserved = budget.reserve(&calls).now_or_never()?;
        Some(reserved.map_err(|spent| spent.to_string()))
    }

    #[test]
    fn calls_that_surely_fit_run_and_the_others_wait_for_what_these_take() {
        let statement = StatementBudget::new(limits(Some(100), None), Arc::default());
        let mut first = now(&statement, &[40, 40, 40]).unwrap().unwrap();
        assert_eq!(first.count(), 2);
        assert!(now(&statement, &[40]).is_none(), "80 of 100 are set aside");
        first.settle(0, Some(10));
        let second = now(&statement, &[40]).unwrap().unwrap();
        drop(second);
        first.settle(1, None);
        let third = now(&statement, &[90]).unwrap().unwrap();
        assert_eq!(third.count(), 1);
        drop((first, third));
        let error = now(&statement, &[91]).unwrap().unwrap_err();
        assert_eq!(
            error,
            "tokens_max is 100: the statement has computed 10 tokens, 90 are left, and the next call may take 91"
        );
    }

    #[test]
    fn calls_are_counted_too_and_known_answers_are_free() {
        let statement = StatementBudget::new(limits(None, Some(2)), Arc::default());
        let mut all = now(&statement, &[1, 1, 1]).unwrap().unwrap();
        assert_eq!(all.count(), 2);
        all.settle(0, None);
        all.settle(0, Some(1_000));
        all.settle(1, Some(1));
        let mut last = now(&statement, &[1]).unwrap().unwrap();
        last.settle(0, Some(1));
        let error = now(&statement, &[1]).unwrap().unwrap_err();
        assert_eq!(
            error,
            "calls_max is 2: the statement has computed 2 calls, 0 are left, and the next call may take 1"
        );
        let known = statement.reserve(&[ComputedCalls::default(); 3]).now_or_never();
        assert_eq!(known.unwrap().unwrap().count(), 3, "a spent budget leaves what is known");
    }

    #[test]
    fn statements_of_a_day_share_its_limit_and_the_next_day_is_free_again() {
        let today = Arc::new(AtomicU64::new(7));
        let tenant = tenant(limits(Some(100), None), &today);
        let statement = || StatementBudget::new(BudgetLimits::default(), Arc::clone(&tenant));
        tenant.kept(7, ComputedCalls { tokens: 50, calls: 3 });
        let one = statement();
        let mut first = now(&one, &[30]).unwrap().unwrap();
        assert!(now(&statement(), &[30]).is_none(), "another statement waits for this one");
        first.settle(0, Some(30));
        let error = now(&statement(), &[30]).unwrap().unwrap_err();
        assert!(error.contains("today's statements have computed 80 tokens"), "{error}");
        let unwritten = UnwrittenCalls { more: ComputedCalls::one(30), ..UnwrittenCalls::default() };
        assert_eq!(tenant.take_unwritten(), BTreeMap::from([(7, unwritten)]));
        today.store(8, Ordering::Relaxed);
        assert!(matches!(now(&statement(), &[100]), Some(Ok(_))));
        tenant.kept(7, ComputedCalls { tokens: 100, calls: 1 });
        assert!(matches!(now(&statement(), &[100]), Some(Ok(_))), "a sum of yesterday changes nothing");
    }

    #[test]
    fn a_sum_that_is_kept_counts_with_what_is_not_kept_yet() {
        let tenant = tenant(limits(Some(100), None), &Arc::new(AtomicU64::new(1)));
        let statement = StatementBudget::new(BudgetLimits::default(), Arc::clone(&tenant));
        now(&statement, &[20]).unwrap().unwrap().settle(0, Some(20));
        tenant.kept(1, ComputedCalls { tokens: 70, calls: 1 });
        assert!(matches!(now(&statement, &[11]), Some(Err(_))));
        let mut unwritten = tenant.take_unwritten();
        tenant.put_back(1, unwritten.remove(&1).unwrap());
        tenant.kept(1, ComputedCalls { tokens: 70, calls: 1 });
        assert!(matches!(now(&statement, &[11]), Some(Err(_))));
    }

    #[test]
    fn what_a_kept_sum_holds_of_calls_counts_until_it_is_told_what_they_took() {
        let today = Arc::new(AtomicU64::new(7));
        let tenant = tenant(limits(Some(100), None), &today);
        let statement = StatementBudget::new(BudgetLimits::default(), Arc::clone(&tenant));
        let mut calls = now(&statement, &[30, 30, 30]).unwrap().unwrap();
        calls.keep(2);
        let sum = |tokens, calls| ComputedCalls { tokens, calls };
        assert_eq!(calls.most(), sum(60, 2), "the third is given back");
        // Another server's 10 are among them.
        calls.hold(7, sum(70, 3));
        assert!(now(&statement, &[31]).is_none(), "10 are computed, 60 set aside, each once");
        calls.settle(0, Some(5));
        assert!(now(&statement, &[56]).is_none());
        drop(now(&statement, &[55]).unwrap().unwrap());
        drop(calls);
        let unwritten = tenant.take_unwritten();
        assert_eq!(unwritten, BTreeMap::from([(7, UnwrittenCalls { more: sum(0, 0), less: sum(55, 1) })]));
        tenant.kept(7, sum(15, 2));
        assert!(matches!(now(&statement, &[85]), Some(Ok(_))));
        assert!(matches!(now(&statement, &[86]), Some(Err(_))));
        // A call counts on the day on which it was set aside.
        let mut late = now(&statement, &[20]).unwrap().unwrap();
        late.hold(7, sum(35, 3));
        today.store(8, Ordering::Relaxed);
        late.settle(0, Some(20));
        assert!(tenant.take_unwritten().is_empty(), "the sum of yesterday has it");
        assert!(matches!(now(&statement, &[100]), Some(Ok(_))));
    }
}
