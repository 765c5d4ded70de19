//! Nobody is done much later than first come, first served would have had somebody be done (MARGINAL-WORK.md, O13).
//!
//! Least work first lets large relQueries wait for as long as smaller ones come: under more load than the machine can
//! do, to the end. What arrives last under first come, first served is done when all that is here is done, so the
//! longest that anybody would wait there is known at any time: the longest that the backlog lasted.
//!
//! ```text
//! D        = tail x max over the relQueries that came lately of (work that was here, itself included) / pace
//! late(R)  : arrival(R) + D <= now + (work of R and of all that came before it) / pace
//! ```
//!
//! Of all that is here in the order of arrival, what stands up to the first late one goes before the rest, in the
//! order of work among itself: whatever order it is served in, the late one is done in time with it. It is the rule
//! of the earliest deadline with least work first wherever there is time to spare.
//!
//! A bound on the longest costs most of what the order gives, for it is the largest that all others then wait for. A
//! bound on a percentile lets a few be later: as many as may be, less those that were, have no deadline, and they are
//! those that have missed it and then those with the most work left.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use base::{Nanos, RelQueryId, ServiceClass, Time};

use crate::cost::CostModel;

/// RelQueries after which the longest backlog before them is forgotten; it is remembered for up to twice as many.
const WINDOW: u32 = 128;
/// Parts of D in which it is looked at again at the earliest, and at the latest.
const LOOKS: (u64, u64) = (64, 8);
/// Part of D by which what was late must have gained before it is late no more.
const GAINED: u64 = 16;
const CLASSES: usize = 3;
/// Parts of the yardstick in which work is counted.
const PARTS: u128 = 1 << 20;

/// Machine time of a piece of work that stays the same, by a cost model: work is counted in it, because a model that is
/// fitted anew can make all that is here half as much again or half, while nothing came and nothing was done.
fn yardstick(cost: &CostModel) -> u128 {
    let decode = u128::from(cost.decode_base.0) + 64 * u128::from(cost.decode_per_sequence.0);
    let prefill = u128::from(cost.prefill_base.0) + 2_048 * u128::from(cost.prefill_per_token.0);
    (prefill + 16 * decode).max(1)
}

fn parts(work: Nanos, yardstick: u128) -> u128 {
    u128::from(work.0) * PARTS / yardstick
}

/// An open relQuery: when it came, and the work that is left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenWork {
    pub(crate) id: RelQueryId,
    pub(crate) class: ServiceClass,
    pub(crate) arrival: Time,
    pub(crate) work: Nanos,
    /// Whether rows of it wait: what only runs gains nothing by going first.
    pub(crate) has_waiting: bool,
}

/// What an operator may set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailLimits {
    /// D in thousandths of the longest that first come, first served would have had.
    pub(crate) permille: u32,
    /// Thousandths of the relQueries that may be later than that.
    pub(crate) late_permille: u32,
}

/// What is late, by service class: each is measured against its own backlog.
#[derive(Clone, Debug, Default)]
pub(crate) struct TailBound {
    classes: [ClassTail; CLASSES],
    next: Time,
}

#[derive(Clone, Debug, Default)]
struct ClassTail {
    /// All up to this one go before what came later.
    late_until: Option<RelQueryId>,
    /// When it was looked at last, and the backlog then.
    looked: Time,
    backlog: u128,
    /// Work that has come since.
    arrived: u128,
    /// Work done in so much time, ns, while there was any.
    served: u128,
    busy: u128,
    /// How long the backlog lasted, at most: of the window before this one, and of this one.
    longest: [Nanos; 2],
    relqueries: u32,
    /// RelQueries that ever came.
    came: u64,
    /// Those that were later than they may, open or not: how many had come by then, and the age they were last seen at.
    overdue: BTreeMap<RelQueryId, (u64, u64)>,
    /// Those that have no deadline, in order.
    exempt: Vec<RelQueryId>,
}

impl TailBound {
    /// Whether the relQuery goes before those that are on time.
    pub(crate) fn is_late(&self, class: ServiceClass, id: RelQueryId) -> bool {
        let class = &self.classes[class as usize];
        class.late_until.is_some_and(|until| id <= until) && class.exempt.binary_search(&id).is_err()
    }

    /// A relQuery came.
    pub(crate) fn arrived(&mut self, class: ServiceClass, work: Nanos, cost: &CostModel) {
        let class = &mut self.classes[class as usize];
        if class.backlog + class.arrived == 0 {
            self.next = Time(0);
        }
        class.arrived += parts(work, yardstick(cost));
        class.relqueries += 1;
        class.came += 1;
        if class.relqueries > WINDOW {
            class.longest = [class.longest[1], Nanos(0)];
            (class.served, class.busy) = (class.served / 2, class.busy / 2);
            class.relqueries = 0;
        }
    }

    /// Whether it is time to look again.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.next
    }

    /// Looks at all that is here, in the order of arrival. True where other relQueries are late than before.
    pub(crate) fn look(
        &mut self,
        now: Time,
        limits: TailLimits,
        open: &[OpenWork],
        cost: &CostModel,
    ) -> bool {
        let yardstick = yardstick(cost);
        let mut has_changed = false;
        let mut next = u64::MAX;
        for (number, class) in self.classes.iter_mut().enumerate() {
            let (before, exempt) = (class.late_until, std::mem::take(&mut class.exempt));
            let own = open.iter().filter(|one| one.class as usize == number);
            next = next.min(class.look(now, limits, own, yardstick).0);
            has_changed |= before != class.late_until || (before.is_some() && exempt != class.exempt);
        }
        self.next = now + Nanos(next);
        has_changed
    }
}

impl ClassTail {
    /// Gives the time until it should be looked at again; with nothing here that is when something comes.
    fn look<'a>(
        &mut self,
        now: Time,
        limits: TailLimits,
        open: impl Iterator<Item = &'a OpenWork> + Clone,
        yardstick: u128,
    ) -> Nanos {
        let backlog = open.clone().map(|one| parts(one.work, yardstick)).sum::<u128>();
        if self.backlog > 0 {
            self.busy += u128::from(now.since(self.looked).0);
            self.served += (self.backlog + self.arrived).saturating_sub(backlog);
        }
        (self.looked, self.backlog, self.arrived) = (now, backlog, 0);
        let before = self.late_until.take();
        if backlog == 0 {
            return Nanos(u64::MAX);
        }
        let lasts = self.time(backlog, yardstick);
        self.longest[1] = self.longest[1].max(lasts);
        let longest = self.longest[0].max(self.longest[1]);
        let bound = u128::from(longest.0) * u128::from(limits.permille) / 1_000;
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        self.choose_exempt(now, bound, limits.late_permille, open.clone());
        let (mut work, mut least) = (0_u128, bound);
        for one in open {
            // Nobody waits for what has no deadline, but for what of it runs.
            if one.has_waiting && self.exempt.binary_search(&one.id).is_ok() {
                continue;
            }
            work += parts(one.work, yardstick);
            if !one.has_waiting {
                continue;
            }
            let deadline = one.arrival.0.saturating_add(bound);
            let spare = deadline.saturating_sub(now.0.saturating_add(self.time(work, yardstick).0));
            let enough = if before.is_some_and(|until| one.id <= until) { bound / GAINED } else { 0 };
            if spare <= enough {
                self.late_until = Some(one.id);
                least = 0;
                break;
            }
            least = least.min(spare);
        }
        Nanos(least.clamp(bound / LOOKS.0, bound / LOOKS.1).max(1_000_000))
    }

    /// Chooses those that have no deadline: as many as may be later than `bound`, less those that ended later.
    fn choose_exempt<'a>(
        &mut self,
        now: Time,
        bound: u64,
        late_permille: u32,
        open: impl Iterator<Item = &'a OpenWork> + Clone,
    ) {
        self.exempt.clear();
        if late_permille == 0 {
            return;
        }
        let lately = 2 * u64::from(WINDOW);
        let allowed = (self.came.min(lately) * u64::from(late_permille) / 1_000).max(1);
        let age = |one: &OpenWork| now.since(one.arrival).0;
        // What waits for more rows of its caller is not late by its own work.
        let open = open.filter(|one| one.work > Nanos(0));
        // What was done just in time may be seen a little after it.
        let enough = bound.saturating_add(bound / GAINED);
        for one in open.clone().filter(|one| age(one) > enough) {
            self.overdue.entry(one.id).or_insert((self.came, 0)).1 = age(one);
        }
        // A bound that has grown since excuses those that were within it.
        let came = self.came;
        self.overdue.retain(|_, (then, oldest)| came - *then <= lately && *oldest > enough);
        let here = open.clone().filter(|one| self.overdue.contains_key(&one.id)).count();
        let left = allowed.saturating_sub((self.overdue.len() - here) as u64);
        let mut largest: Vec<&OpenWork> = open.filter(|one| one.has_waiting || age(one) >= bound).collect();
        largest.sort_unstable_by_key(|one| Reverse((age(one) >= bound, one.work, Reverse(one.id))));
        largest.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        self.exempt.extend(largest.iter().map(|one| one.id));
        self.exempt.sort_unstable();
    }

    /// The time that so much work takes, as measured; as modelled until as much was done.
    fn time(&self, work: u128, yardstick: u128) -> Nanos {
        let prior = self.backlog.max(1);
        let time = work * (self.busy + prior * yardstick / PARTS) / (self.served + prior);
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn open(id: u64, arrival: u64, work: u64) -> OpenWork {
        OpenWork {
            id: RelQueryId(id),
            class: ServiceClass::Interactive,
            arrival: Time(arrival * SECOND),
            work: Nanos(work * SECOND),
            has_waiting: true,
        }
    }

    /// The longest is bounded.
    fn longest(permille: u32) -> TailLimits {
        TailLimits { permille, late_permille: 0 }
    }

    /// The 99th percentile is.
    fn percentile(permille: u32) -> TailLimits {
        TailLimits { permille, late_permille: 10 }
    }

    /// Which are late, looked at in this second.
    fn late(tail: &mut TailBound, second: u64, permille: u32, open: &[OpenWork]) -> Vec<u64> {
        late_within(tail, second, longest(permille), open)
    }

    fn late_within(tail: &mut TailBound, second: u64, limits: TailLimits, open: &[OpenWork]) -> Vec<u64> {
        tail.look(Time(second * SECOND), limits, open, &CostModel::default());
        let late = open.iter().filter(|one| tail.is_late(one.class, one.id));
        late.map(|one| one.id.0).collect()
    }

    #[test]
    fn a_large_one_is_overtaken_until_it_would_be_done_later_than_it_may() {
        let mut tail = TailBound::default();
        tail.arrived(ServiceClass::Interactive, Nanos(10 * SECOND), &CostModel::default());
        assert_eq!(late(&mut tail, 0, 1_500, &[open(1, 0, 10)]), [0_u64; 0], "15 s are borne");
        // The first second goes to the large one; from then on one of a second comes every second, and is served.
        for second in 1..=5 {
            tail.arrived(ServiceClass::Interactive, Nanos(SECOND), &CostModel::default());
            let here = [open(1, 0, 9), open(second + 1, second, 1)];
            assert_eq!(late(&mut tail, second, 1_500, &here), [0_u64; 0], "second {second}");
        }
        tail.arrived(ServiceClass::Interactive, Nanos(SECOND), &CostModel::default());
        let here = [open(1, 0, 9), open(7, 6, 1)];
        assert_eq!(late(&mut tail, 6, 1_500, &here), [1], "9 s of work, 9 s before the 15 s are over");
    }

    #[test]
    fn what_came_before_the_late_one_is_late_with_it() {
        let mut tail = TailBound::default();
        let here = [open(1, 10, 1), open(2, 10, 8), open(3, 20, 11)];
        assert_eq!(
            late(&mut tail, 20, 1_100, &here),
            [0_u64; 0],
            "20 s of work are here, so that 22 s are borne"
        );
        let here = [open(1, 10, 1), open(2, 10, 8), open(3, 20, 7)];
        assert_eq!(late(&mut tail.clone(), 24, 2_000, &here), [0_u64; 0]);
        // The first has 7 s to spare, and stands before the second: 9 s of work until second 32.
        assert_eq!(late(&mut tail, 24, 1_100, &here), [1, 2]);
    }

    #[test]
    fn the_first_late_one_goes_before_the_next() {
        let mut tail = TailBound::default();
        let here = [open(1, 0, 1), open(2, 8, 8), open(3, 10, 11)];
        assert_eq!(late(&mut tail, 10, 1_100, &here), [0_u64; 0], "22 s are borne");
        tail.arrived(ServiceClass::Interactive, Nanos(2 * SECOND), &CostModel::default());
        // The second must be done at second 30 and could just be.
        let here = [open(1, 0, 1), open(2, 8, 8), open(4, 21, 2)];
        assert_eq!(late(&mut tail, 21, 1_100, &here), [1]);
        assert_eq!(late(&mut tail, 22, 1_100, &here[1..]), [2]);
    }

    #[test]
    fn what_only_runs_lets_the_next_late_one_go_first() {
        let mut tail = TailBound::default();
        let here = [open(1, 0, 4), open(2, 0, 4), open(3, 0, 4)];
        assert_eq!(late(&mut tail, 0, 1_100, &here), [0_u64; 0], "13.2 s are borne");
        // Smaller ones came and went.
        tail.arrived(ServiceClass::Interactive, Nanos(10 * SECOND), &CostModel::default());
        assert_eq!(late(&mut tail.clone(), 10, 1_100, &here), [1]);
        let runs = OpenWork { has_waiting: false, ..open(1, 0, 4) };
        assert_eq!(late(&mut tail, 10, 1_100, &[runs, here[1], here[2]]), [1, 2]);
    }

    #[test]
    fn a_cost_model_that_is_fitted_anew_makes_no_backlog_longer() {
        let mut tail = TailBound::default();
        let cost = CostModel::default();
        let twice = CostModel {
            prefill_per_token: Nanos(2 * cost.prefill_per_token.0),
            prefill_base: Nanos(2 * cost.prefill_base.0),
            decode_per_sequence: Nanos(2 * cost.decode_per_sequence.0),
            decode_base: Nanos(2 * cost.decode_base.0),
            ..cost
        };
        tail.look(Time(0), longest(1_100), &[open(1, 0, 90), open(2, 0, 10)], &cost);
        tail.look(Time(90 * SECOND), longest(1_100), &[open(2, 0, 10)], &cost);
        // 90 s of work were done in 90 s, and 20 s of the new model's are left: 10 s or little more, 110 s being borne.
        tail.look(Time(91 * SECOND), longest(1_100), &[open(2, 0, 20)], &twice);
        assert!(!tail.is_late(ServiceClass::Interactive, RelQueryId(2)));
        tail.look(Time(99 * SECOND), longest(1_100), &[open(2, 0, 20)], &twice);
        assert!(tail.is_late(ServiceClass::Interactive, RelQueryId(2)));
    }

    fn arrived(tail: &mut TailBound, seconds: u64) {
        tail.arrived(ServiceClass::Interactive, Nanos(seconds * SECOND), &CostModel::default());
    }

    #[test]
    fn where_one_in_a_hundred_may_be_later_it_is_the_one_with_the_most_work() {
        let mut tail = TailBound::default();
        let here = [open(1, 0, 10), open(2, 0, 8)];
        assert_eq!(late_within(&mut tail, 0, percentile(1_100), &here), [0_u64; 0], "19.8 s are borne");
        arrived(&mut tail, 2);
        assert_eq!(
            late(&mut tail.clone(), 2, 1_100, &here),
            [1, 2],
            "18 s of work, 17.8 s before it is late"
        );
        assert_eq!(
            late_within(&mut tail, 2, percentile(1_100), &here),
            [0_u64; 0],
            "8 s without the largest"
        );
        arrived(&mut tail, 10);
        assert_eq!(late_within(&mut tail, 12, percentile(1_100), &here), [2], "the largest still has none");
    }

    #[test]
    fn what_was_later_than_it_may_leaves_room_for_another_once_it_no_longer_counts() {
        let mut tail = TailBound::default();
        let large = open(1, 0, 10);
        late_within(&mut tail, 0, percentile(1_100), &[large, open(2, 0, 8)]);
        arrived(&mut tail, 22);
        let here = [large, open(3, 20, 8)];
        assert_eq!(
            late_within(&mut tail, 22, percentile(1_100), &here),
            [0_u64; 0],
            "the first is late for good"
        );
        let (mut longer, mut forgotten) = (tail.clone(), tail.clone());
        arrived(&mut tail, 7);
        let here = [open(3, 20, 8), open(4, 22, 7)];
        assert_eq!(late_within(&mut tail, 32, percentile(1_100), &here), [3], "it ended, and was the one");

        // More than twice the window has come since: two of them may be later than the 16.5 s that are borne now.
        arrived(&mut forgotten, 7);
        (0..=2 * WINDOW).for_each(|_| arrived(&mut forgotten, 0));
        assert_eq!(late_within(&mut forgotten, 32, percentile(1_100), &here), [0_u64; 0]);

        // With 33 s of work here 36.3 are borne, within which the first was.
        arrived(&mut longer, 25);
        late_within(&mut longer, 32, percentile(1_100), &[open(3, 20, 8), open(5, 32, 25)]);
        let here = [open(3, 20, 8)];
        assert_eq!(late(&mut longer.clone(), 50, 1_100, &here), [3]);
        assert_eq!(late_within(&mut longer, 50, percentile(1_100), &here), [0_u64; 0]);
    }

    #[test]
    fn what_only_waits_for_more_rows_takes_nobodys_place_among_those_that_may_be_later() {
        let mut tail = TailBound::default();
        let idle = OpenWork { has_waiting: false, ..open(1, 0, 0) };
        late_within(&mut tail, 100, percentile(1_100), &[idle, open(2, 100, 10), open(3, 100, 8)]);
        arrived(&mut tail, 2);
        let here = [idle, open(2, 100, 10), open(3, 100, 8)];
        assert_eq!(late(&mut tail.clone(), 102, 1_100, &here), [1, 2, 3]);
        assert_eq!(late_within(&mut tail, 102, percentile(1_100), &here), [0_u64; 0]);
    }

    #[test]
    fn classes_are_measured_apart_and_a_long_backlog_is_forgotten() {
        let bulk = OpenWork { class: ServiceClass::Bulk, ..open(1, 0, 50) };
        let mut tail = TailBound::default();
        assert_eq!(late(&mut tail, 0, 1_100, &[bulk, open(2, 0, 1)]), [0_u64; 0]);
        assert_eq!(late(&mut tail, 2, 1_100, &[bulk, open(2, 0, 1)]), [2], "1.1 s are borne in its class");
        assert_eq!(late(&mut tail, 3, 1_100, &[bulk]), [0_u64; 0], "55 s");
        let short = OpenWork { class: ServiceClass::Bulk, ..open(9, 4, 1) };
        assert_eq!(late(&mut tail.clone(), 5, 1_100, &[short]), [0_u64; 0]);
        for _ in 0..=2 * WINDOW + 1 {
            tail.arrived(ServiceClass::Bulk, Nanos(0), &CostModel::default());
        }
        assert_eq!(late(&mut tail, 5, 1_100, &[short]), [9], "the long backlog is too long ago to count");
    }

    #[test]
    fn it_is_looked_at_again_before_anything_can_be_late_and_when_the_first_of_a_class_comes() {
        let mut tail = TailBound::default();
        assert!(tail.is_due(Time(0)));
        tail.look(Time(0), longest(1_500), &[open(1, 0, 64)], &CostModel::default());
        assert!(!tail.is_due(Time(SECOND)), "a bound of 96 s");
        assert!(tail.is_due(Time(12 * SECOND)));
        tail.look(Time(90 * SECOND), longest(1_500), &[open(1, 0, 64)], &CostModel::default());
        assert!(tail.is_due(Time(96 * SECOND)));
        tail.look(Time(100 * SECOND), longest(1_500), &[], &CostModel::default());
        assert!(!tail.is_due(Time(1_000 * SECOND)), "nothing is here");
        tail.arrived(ServiceClass::Dashboard, Nanos(SECOND), &CostModel::default());
        assert!(tail.is_due(Time(100 * SECOND)));
    }
}
