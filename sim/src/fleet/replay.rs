//! A trace of relQueries in front of replicas, in virtual time: the fleet that serves, and replicas each of
//! which is a scheduler that knows rows only, as vLLM does, on a machine made of a cost model.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use base::{Executor, Nanos, Periods, RelQueryId, RequestId, Submission, Time, TokenCount};
use scheduler::fleet::{Dispatch, Finish, FleetConfig, PromptScale, ReplicaConfig, ReplicaId};
use scheduler::{CostModel, Event, Fleet, Policy, Scheduler, SchedulerConfig, Usage};

use crate::executor::SimExecutor;
use crate::replay::SimError;
use crate::summary::{IterationCounts, LatencySummary};
use crate::trace::{Lowered, Trace};
use crate::watch::Watcher;

/// What a replica says of its KV memory, which bounds its rows together where nothing is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedKv {
    /// Tokens that it holds, as it counts them.
    pub tokens: TokenCount,
    /// How prompts are counted in the trace and there.
    pub scale: PromptScale,
}

/// Replicas, and what stands in front of them.
#[derive(Clone, Debug)]
pub struct FleetMachine {
    /// How many replicas there are, all alike.
    pub replicas: u32,
    /// What one is given at a time.
    pub replica: ReplicaConfig,
    /// What each says of its memory, where `replica` does not say it.
    pub reported: Option<ReportedKv>,
    /// The limits of a replica's own scheduler and its policy.
    pub inner: SchedulerConfig,
    /// What its steps take.
    pub cost: CostModel,
    /// What a row takes beside: the way there and back.
    pub transport: Nanos,
    /// The fleet.
    pub fleet: FleetConfig,
    /// The settings of the queue; its policy is the replay's.
    pub queue: SchedulerConfig,
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetReplay {
    pub policy: Policy,
    /// Latencies of relQueries.
    pub summary: LatencySummary,
    /// The same for each tenant, by name; what the caches supplied is not told apart.
    pub tenants: BTreeMap<String, LatencySummary>,
    /// Of each relQuery, in file order.
    pub periods: Vec<Periods>,
    /// Steps of all replicas together.
    pub steps: u64,
    /// End of each in seconds, in file order.
    pub t_done: Vec<f64>,
    /// Rows that each replica answered.
    pub answered: Vec<u64>,
    /// What the fleet thinks its replicas' steps cost, at the end.
    pub fitted: CostModel,
}

/// What happens at a time, the earlier first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// A relQuery of that place in the trace arrives.
    Arrival(usize),
    /// A row comes to its replica.
    Reached(RequestId),
    /// A replica's step ends.
    Step(ReplicaId),
    /// The fleet hears of a row's end.
    Heard(RequestId),
    /// Time alone changes something in the fleet.
    Timer,
}

struct SimReplica {
    scheduler: Scheduler,
    executor: SimExecutor,
    outcome: Option<base::StepOutcome>,
    answered: u64,
    steps: u64,
}

struct FleetWorld<'a> {
    machine: &'a FleetMachine,
    fleet: Fleet,
    replicas: Vec<SimReplica>,
    agenda: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    scheduled: u64,
    /// The first timer on the agenda.
    timer: Option<Time>,
    /// Rows on their way, and ends that the fleet has not heard of.
    sent: BTreeMap<RequestId, Dispatch>,
    ended: BTreeMap<RequestId, Finish>,
    finished: BTreeMap<RelQueryId, (Time, Periods)>,
    usage: Usage,
}

/// Replays a trace in front of replicas.
pub fn replay_fleet(
    trace: &Trace,
    policy: Policy,
    machine: &FleetMachine,
    watch: &mut dyn Watcher,
) -> Result<FleetReplay, SimError> {
    replay_fleet_lowered(trace.lower()?, policy, machine, watch)
}

/// The same for submissions whose prompts are there already.
pub fn replay_fleet_lowered(
    lowered: Lowered,
    policy: Policy,
    machine: &FleetMachine,
    watch: &mut dyn Watcher,
) -> Result<FleetReplay, SimError> {
    let ids: Vec<RelQueryId> = lowered.submissions.iter().map(|submission| submission.id).collect();
    let name = |submission: &Submission| lowered.tenants.get(submission.tenant.0 as usize).cloned();
    let tenants: Vec<String> =
        lowered.submissions.iter().map(|submission| name(submission).unwrap_or_default()).collect();
    let mut world = FleetWorld::new(machine, policy, &lowered)?;
    for (place, submission) in lowered.submissions.iter().enumerate() {
        world.plan(submission.arrival, Happening::Arrival(place));
    }
    let mut submissions: Vec<Option<Submission>> = lowered.submissions.into_iter().map(Some).collect();
    while let Some(Reverse((now, _, happening))) = world.agenda.pop() {
        if watch.is_over() {
            return Err(SimError::Stopped);
        }
        world.happens(happening, now, &mut submissions)?;
        world.dispatch(now)?;
    }
    world.outcome(policy, &ids, &tenants)
}

impl<'a> FleetWorld<'a> {
    fn new(machine: &'a FleetMachine, policy: Policy, lowered: &Lowered) -> Result<Self, SimError> {
        // What ran on a replica that was larger, or had more room than is said, runs alone on these.
        let largest =
            lowered.submissions.iter().flat_map(|one| &one.items).map(|item| {
                TokenCount((item.prompt.len() as u64).saturating_add(item.generation.output_max.0))
            });
        let largest = largest.max().unwrap_or_default();
        let tokens_max = machine.replica.tokens_max.map(|tokens| tokens.max(largest));
        let size = ReplicaConfig { tokens_max, ..machine.replica };
        let each = (0..machine.replicas).map(|id| (ReplicaId(id), size));
        let queue = SchedulerConfig { policy, ..machine.queue.clone() };
        let replica = || -> Result<SimReplica, SimError> {
            let mut executor = SimExecutor::new(machine.cost);
            executor.mute();
            executor.set_outputs(lowered);
            let scheduler = Scheduler::new(machine.inner.clone(), machine.cost)?;
            Ok(SimReplica { scheduler, executor, outcome: None, answered: 0, steps: 0 })
        };
        let mut fleet = Fleet::new(machine.fleet.clone(), queue, each)?;
        if let Some(ReportedKv { tokens, scale }) = machine.reported {
            for id in (0..machine.replicas).map(ReplicaId) {
                fleet.set_reported(id, Some(tokens));
                fleet.set_prompt_scale(id, scale);
            }
        }
        Ok(Self {
            machine,
            fleet,
            replicas: (0..machine.replicas).map(|_| replica()).collect::<Result<_, _>>()?,
            agenda: BinaryHeap::new(),
            scheduled: 0,
            timer: None,
            sent: BTreeMap::new(),
            ended: BTreeMap::new(),
            finished: BTreeMap::new(),
            usage: Usage::default(),
        })
    }

    fn plan(&mut self, at: Time, happening: Happening) {
        self.agenda.push(Reverse((at, self.scheduled, happening)));
        self.scheduled += 1;
    }

    fn happens(
        &mut self,
        happening: Happening,
        now: Time,
        submissions: &mut [Option<Submission>],
    ) -> Result<(), SimError> {
        match happening {
            Happening::Arrival(place) => {
                let Some(submission) = submissions[place].take() else { return Ok(()) };
                let relquery = submission.id;
                let refused = |reason| SimError::Refused { relquery, reason };
                self.fleet.submit(submission).map_err(refused)?;
            }
            Happening::Reached(request) => {
                let Some(dispatch) = self.sent.remove(&request) else { return Ok(()) };
                let (replica, relquery) = (dispatch.replica, dispatch.relquery);
                // A replica knows rows: each is a relQuery of its own there.
                let row =
                    Submission { id: RelQueryId(request.0), arrival: now, ..dispatch.into_submission() };
                let refused = |reason| SimError::Refused { relquery, reason };
                self.replicas[replica.0 as usize].scheduler.submit(row).map_err(refused)?;
                self.begin(replica, now)?;
            }
            Happening::Step(replica) => {
                let one = &mut self.replicas[replica.0 as usize];
                let events = one.outcome.take().map(|outcome| one.scheduler.apply(&outcome, now));
                for event in events.unwrap_or_default() {
                    if let Event::RowDone { relquery, end, usage, .. } = event {
                        one.answered += 1;
                        let finish = Finish {
                            end,
                            prompt: None,
                            cached: usage.cached,
                            output: usage.output,
                            text: String::new(),
                            tokens: Vec::new(),
                        };
                        self.ended.insert(RequestId(relquery.0), finish);
                        let at = now + Nanos(self.machine.transport.0 / 2);
                        self.agenda.push(Reverse((
                            at,
                            self.scheduled,
                            Happening::Heard(RequestId(relquery.0)),
                        )));
                        self.scheduled += 1;
                    }
                }
                self.begin(replica, now)?;
            }
            Happening::Heard(request) => {
                let Some(finish) = self.ended.remove(&request) else { return Ok(()) };
                let events = self.fleet.finished(request, finish, now);
                self.note(events, now);
            }
            Happening::Timer => self.timer = self.timer.filter(|at| *at > now),
        }
        Ok(())
    }

    /// Begins a replica's next step, if none runs and there is work.
    fn begin(&mut self, id: ReplicaId, now: Time) -> Result<(), SimError> {
        let replica = &mut self.replicas[id.0 as usize];
        if replica.outcome.is_some() {
            return Ok(());
        }
        let Some(plan) = replica.scheduler.plan(now) else { return Ok(()) };
        let outcome = replica.executor.step(&plan).map_err(|error| SimError::Broken(error.to_string()))?;
        let end = now + outcome.elapsed;
        replica.outcome = Some(outcome);
        replica.steps += 1;
        self.plan(end, Happening::Step(id));
        Ok(())
    }

    fn dispatch(&mut self, now: Time) -> Result<(), SimError> {
        for dispatch in self.fleet.dispatch(now) {
            let request = dispatch.request;
            self.sent.insert(request, dispatch);
            self.plan(now + Nanos(self.machine.transport.0.div_ceil(2)), Happening::Reached(request));
        }
        let events = self.fleet.drain_events(now);
        self.note(events, now);
        if let Some(at) = self.fleet.next_timer().filter(|at| *at > now)
            && self.timer.is_none_or(|planned| at < planned)
        {
            self.timer = Some(at);
            self.plan(at, Happening::Timer);
        }
        Ok(())
    }

    fn note(&mut self, events: Vec<Event>, now: Time) {
        for event in events {
            match event {
                Event::RelQueryDone { relquery, periods, .. } => {
                    self.finished.insert(relquery, (now, periods));
                }
                Event::RowDone { usage, .. } => self.usage += usage,
                _ => {}
            }
        }
    }

    fn outcome(
        self,
        policy: Policy,
        ids: &[RelQueryId],
        tenants: &[String],
    ) -> Result<FleetReplay, SimError> {
        let ends: Vec<&(Time, Periods)> = ids.iter().filter_map(|id| self.finished.get(id)).collect();
        if ends.len() != ids.len() {
            return Err(SimError::Broken(format!("{} relQueries never ended", ids.len() - ends.len())));
        }
        let periods: Vec<Periods> = ends.iter().map(|(_, periods)| *periods).collect();
        let last = ends.iter().map(|(at, _)| *at).max().unwrap_or_default();
        let TokenCount(prompt) = self.usage.prompt;
        let steps = self.replicas.iter().map(|replica| replica.steps).sum();
        let counts =
            IterationCounts { prompt, uncached: self.usage.computed.0, ..IterationCounts::default() };
        let mut by_tenant: BTreeMap<String, (Time, Vec<Periods>)> = BTreeMap::new();
        for ((at, periods), tenant) in ends.iter().zip(tenants) {
            let (last, all) = by_tenant.entry(tenant.clone()).or_default();
            *last = (*last).max(*at);
            all.push(*periods);
        }
        let summary = |(last, periods): &(Time, Vec<Periods>)| LatencySummary::of(periods, *last, &counts);
        Ok(FleetReplay {
            policy,
            summary: LatencySummary::of(&periods, last, &counts),
            tenants: by_tenant.iter().map(|(tenant, ends)| (tenant.clone(), summary(ends))).collect(),
            periods,
            steps,
            t_done: ends.iter().map(|(at, _)| at.0 as f64 / 1e9).collect(),
            answered: self.replicas.iter().map(|replica| replica.answered).collect(),
            fitted: self.fleet.cost(),
        })
    }
}

#[cfg(test)]
mod tests {
    use base::ServiceClass;

    use super::*;
    use crate::paper::{Dataset, Workload, generate};
    use crate::replay::replay;
    use crate::replay_config::ReplayConfig;
    use crate::watch::Unwatched;

    fn machine(replicas: u32, rows_max: u32) -> FleetMachine {
        let config = ReplayConfig::default();
        FleetMachine {
            replicas,
            replica: ReplicaConfig { rows_max, tokens_max: None },
            reported: None,
            inner: SchedulerConfig { policy: Policy::Fcfs, kv_blocks: 100_000, ..config.scheduler.clone() },
            cost: config.cost,
            transport: Nanos(0),
            fleet: FleetConfig { rows_max: u32::MAX, relqueries_max: u32::MAX, ..FleetConfig::default() },
            queue: config.scheduler,
        }
    }

    fn fleet_mean(trace: &Trace, policy: Policy, machine: &FleetMachine) -> f64 {
        replay_fleet(trace, policy, machine, &mut Unwatched).expect("it runs").summary.mean
    }

    #[test]
    fn one_replica_that_takes_everything_is_the_engine_itself() {
        let trace = generate(&Workload { relqueries: 40, ..Workload::new(Dataset::Beer, 0.8, 3) });
        let mut config = ReplayConfig::default();
        config.scheduler.kv_blocks = 100_000;
        let engine = replay(&trace, Policy::Fcfs, &config).expect("it runs").summary.mean;
        let fleet = fleet_mean(&trace, Policy::Fcfs, &machine(1, u32::MAX));
        assert!((fleet / engine - 1.0).abs() < 0.02, "{fleet} beside {engine}");
    }

    #[test]
    fn replicas_have_no_more_tokens_in_flight_than_they_hold_and_run_what_is_larger_alone() {
        let trace = generate(&Workload { relqueries: 20, ..Workload::new(Dataset::Beer, 0.8, 3) });
        let holding = |tokens: Option<u64>| {
            let replica = ReplicaConfig { rows_max: 64, tokens_max: tokens.map(TokenCount) };
            fleet_mean(&trace, Policy::Fcfs, &FleetMachine { replica, ..machine(1, 64) })
        };
        let (roomy, narrow, alone) = (holding(None), holding(Some(3_000)), holding(Some(1)));
        assert!(roomy < narrow && narrow < alone, "{roomy} {narrow} {alone}");
    }

    #[test]
    fn what_replicas_report_of_their_memory_bounds_their_rows_in_their_own_tokens() {
        let trace = generate(&Workload { relqueries: 20, ..Workload::new(Dataset::Beer, 0.8, 3) });
        let holding = |reported: Option<(u64, PromptScale)>| {
            let reported = reported.map(|(tokens, scale)| ReportedKv { tokens: TokenCount(tokens), scale });
            fleet_mean(&trace, Policy::Fcfs, &FleetMachine { reported, ..machine(1, 64) })
        };
        let alike = PromptScale::default();
        let (roomy, narrow) = (holding(None), holding(Some((2_000, alike))));
        assert!(roomy < narrow && narrow < holding(Some((1, alike))), "{roomy} {narrow}");
        let shorter = holding(Some((2_000, PromptScale::of(4, 1))));
        assert!(shorter < narrow, "{shorter} {narrow}: a replica counts a quarter of what is counted here");
    }

    #[test]
    fn a_timer_that_comes_before_the_one_that_is_planned_is_not_missed() {
        let trace = generate(&Workload { relqueries: 2, ..Workload::new(Dataset::Beer, 0.8, 3) });
        let mut machine = machine(1, 1);
        machine.queue.fairness = Some(true);
        let lowered = trace.lower().expect("sound");
        let mut submissions = lowered.submissions.clone();
        let mut world = FleetWorld::new(&machine, Policy::MarginalWork, &lowered).expect("sound");
        let waits = [ServiceClass::Bulk, ServiceClass::Dashboard].map(|class| {
            let submission = Submission { class, arrival: Time(0), ..submissions.remove(0) };
            world.fleet.submit(submission).expect("room");
            world.dispatch(Time(0)).expect("it runs");
            world.timer
        });
        assert!(waits[0].is_some() && waits[1] < waits[0], "a dashboard's wait is shorter: {waits:?}");
        let timers = world.agenda.iter().filter(|Reverse((_, _, what))| *what == Happening::Timer);
        assert_eq!(timers.map(|Reverse((at, _, _))| Some(*at)).min(), Some(waits[1]));
    }

    #[test]
    fn a_queue_that_orders_beats_first_come_first_served_and_two_replicas_beat_one() {
        let trace = generate(&Workload { relqueries: 60, ..Workload::new(Dataset::Rotten, 1.0, 1) });
        let fcfs = fleet_mean(&trace, Policy::Fcfs, &machine(1, 64));
        let ordered = fleet_mean(&trace, Policy::MarginalWork, &machine(1, 64));
        assert!(ordered * 1.5 < fcfs, "{ordered} beside {fcfs}");
        let two =
            replay_fleet(&trace, Policy::MarginalWork, &machine(2, 64), &mut Unwatched).expect("it runs");
        assert!(two.summary.mean < ordered);
        let rows: usize = trace.relqueries.iter().map(|relquery| relquery.rows.len()).sum();
        assert_eq!(two.answered.iter().sum::<u64>(), rows as u64, "each row once");
        assert!(two.answered.iter().all(|rows| *rows > 0));
        let (found, real) = (two.fitted.decode_base.0, ReplayConfig::default().cost.decode_base.0);
        assert!(found > real / 2 && found < real * 2, "{found} ns found, {real} ns real");
    }
}
