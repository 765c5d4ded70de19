//! The fleet on the loop's thread: rows go out where the queue sends them, reports come back and become
//! events.
//!
//! Requests run on a small runtime of their own; nothing here waits for one. A request's end, a look at a
//! server's health and an operator's wish arrive as [`FleetMessage`] through the loop's inbox.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::{Nanos, PromptToken, RelQueryId, RequestId, RowError, Submission, Time, TokenLogprob, WorkItem};
use scheduler::fleet::{Dispatch, Failure, Finish, Health, ReplicaId};
use scheduler::snapshot::Start;
use scheduler::{Event, FleetConfig, Policy, Refused, SchedulerConfig, SchedulerSnapshot, Stats};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use super::ReplicaView;
use super::constraint_check::held;
use super::factory::ReplicaFactory;
use super::lease::Leases;
use super::local::{LocalAnswer, LocalCommand};
use super::message::FleetMessage;
use super::replica::{Replica, Transport};
use super::reply::{LossKind, Outcome};
use crate::config::PromptForm;
use crate::price::TokenPrices;
use crate::shared::Shared;
use crate::traces::open::PassedOn;
use crate::view::View;

/// A request in flight.
struct InFlightRow {
    replica: ReplicaId,
    /// Whose row it is.
    row: (RelQueryId, u32),
    sent: Time,
    /// Whether its text goes out as it comes.
    streams: bool,
    /// Ends its HTTP request; none on the local engine.
    abort: Option<AbortHandle>,
}

/// How likely a row's answer is.
pub(crate) struct RowLikelihood {
    pub(crate) relquery: RelQueryId,
    pub(crate) row: u32,
    /// Among those that its constraint allows, where that is known.
    pub(crate) probability: Option<f64>,
    /// Of its tokens, where they were asked for.
    pub(crate) logprobs: Vec<TokenLogprob>,
}

/// What tokens cost where a row ran.
pub(crate) struct RowPrices {
    pub(crate) relquery: RelQueryId,
    pub(crate) row: u32,
    pub(crate) prices: TokenPrices,
}

/// A queue, replicas, and what they run.
pub struct Fleet {
    pub(super) queue: scheduler::Fleet,
    pub(super) replicas: BTreeMap<ReplicaId, Replica>,
    /// The number of the replica that comes next.
    pub(super) next_id: u32,
    pub(super) factory: ReplicaFactory,
    flying: HashMap<RequestId, InFlightRow>,
    /// The requests of rows on the local engine, which knows rows by their relQueries.
    pub(super) local: HashMap<(RelQueryId, u32), RequestId>,
    /// What other gateways leave of them.
    leases: Leases,
    pub(super) shared: Arc<Shared>,
    /// They end with the fleet.
    _threads: FleetThreads,
    /// How likely the answers are that the next events have.
    likelihoods: Vec<RowLikelihood>,
    /// What tokens cost where the rows ran that the next events end.
    prices: Vec<RowPrices>,
    /// Of rows that the local engine runs.
    pub(super) local_answers: HashMap<RequestId, LocalAnswer>,
    /// What replicas are told of relQueries, until these end.
    passed_on: HashMap<RelQueryId, PassedOn>,
    /// RelQueries that began, until the loop takes them, which it does at once.
    starts: Vec<Start>,
}

/// Threads that send requests, look at servers and for servers. They end with this, which waits for none: it
/// may be dropped where nobody may wait.
pub(super) struct FleetThreads(pub(super) Option<Runtime>);

impl Drop for FleetThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Fleet {
    /// A fleet without replicas.
    pub(super) fn new(
        (config, scheduler): (FleetConfig, SchedulerConfig),
        factory: ReplicaFactory,
        threads: FleetThreads,
    ) -> Result<Self, scheduler::ConfigError> {
        Ok(Self {
            queue: scheduler::Fleet::new(config, scheduler, [])?,
            replicas: BTreeMap::new(),
            next_id: 0,
            flying: HashMap::new(),
            local: HashMap::new(),
            leases: Leases::new(factory.shared.leases.as_deref(), factory.shared.lease_suffix.clone()),
            shared: Arc::clone(&factory.shared),
            factory,
            _threads: threads,
            likelihoods: Vec::new(),
            prices: Vec::new(),
            local_answers: HashMap::new(),
            passed_on: HashMap::new(),
            starts: Vec::new(),
        })
    }

    pub(crate) fn submit(&mut self, submission: Submission) -> Result<(), Refused> {
        self.queue.submit(submission)
    }

    pub(crate) fn extend(&mut self, id: RelQueryId, items: Vec<WorkItem>) -> Result<(), Refused> {
        self.queue.extend(id, items)
    }

    /// What replicas are told of a relQuery.
    pub(crate) fn pass_on(&mut self, id: RelQueryId, passed: PassedOn) {
        self.passed_on.insert(id, passed);
    }

    /// A relQuery has ended.
    pub(crate) fn forget(&mut self, id: RelQueryId) {
        self.passed_on.remove(&id);
    }

    pub(crate) fn cancel(&mut self, id: RelQueryId) {
        self.forget(id);
        for (_, request) in self.queue.cancel(id) {
            self.abort(request);
        }
    }

    pub(crate) fn cancel_row(&mut self, id: RelQueryId, row: u32) {
        self.queue.cancel_row(id, row).into_iter().for_each(|(_, request)| self.abort(request));
    }

    pub(crate) fn sent(&self, id: RelQueryId) -> Vec<u32> {
        self.queue.sent(id)
    }

    pub(crate) fn policy(&self) -> Policy {
        self.queue.scheduler().policy
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.queue.set_policy(policy);
    }

    /// Ends a request that nobody waits for.
    fn abort(&mut self, request: RequestId) {
        let Some(flying) = self.land(request) else { return };
        if let Some(abort) = flying.abort {
            abort.abort();
        }
        let Some(replica) = self.replicas.get(&flying.replica) else { return };
        replica.metrics.cancelled.inc();
        if let Transport::Local(local) = &replica.transport {
            let (relquery, row) = flying.row;
            local.tell(LocalCommand::Cancel(relquery, row));
        }
    }

    /// A request is in flight no more.
    fn land(&mut self, request: RequestId) -> Option<InFlightRow> {
        self.local_answers.remove(&request);
        let flying = self.flying.remove(&request)?;
        if self.local.get(&flying.row) == Some(&request) {
            self.local.remove(&flying.row);
        }
        if let Some(replica) = self.replicas.get_mut(&flying.replica) {
            replica.left(request);
        }
        Some(flying)
    }

    /// Ends a request whose row waits again.
    pub(super) fn take_back(&mut self, request: RequestId) {
        let Some(flying) = self.land(request) else { return };
        if let Some(replica) = self.replicas.get(&flying.replica) {
            replica.metrics.lost.inc();
        }
        if let Some(abort) = flying.abort {
            abort.abort();
        }
    }

    /// Tells the queue how its replicas stand, takes rows back from those that are down, and lets go those
    /// that have left.
    fn stand(&mut self, now: Time) {
        let stands = self.replicas.iter().map(|(id, replica)| (*id, replica.availability(now)));
        for (id, (health, size)) in stands.collect::<Vec<_>>() {
            // A replica's own settings were found valid when it came.
            let _ = self.queue.resize(id, size);
            let replica = self.replicas.get(&id);
            self.queue.set_reported(id, replica.and_then(|replica| replica.kv_reported));
            let url = replica.and_then(Replica::url);
            self.queue.set_share(id, self.leases.share(id, url, now));
            for request in self.queue.set_health(id, health) {
                self.take_back(request);
            }
        }
        self.let_go();
    }

    /// Sends out what can be sent. Returns what became of rows meanwhile.
    pub(crate) fn advance(&mut self, shared: &Shared) -> Vec<Event> {
        let now = shared.clock.now();
        self.stand(now);
        let mut events = self.queue.drain_events(now);
        let sent = self.queue.dispatch(now);
        // Before they are handed on: a row that cannot be sent ends its relQuery.
        self.starts.extend(self.queue.starts(&sent, now));
        for dispatch in sent {
            events.extend(self.send(dispatch, now));
        }
        events.extend(self.queue.drain_events(now));
        if let Some(signal) = &shared.leases
            && self.leases.asks_for(self.queue.held_back())
        {
            signal.wanted.notify_one();
        }
        events
    }

    /// Sends a row to its replica.
    fn send(&mut self, dispatch: Dispatch, now: Time) -> Vec<Event> {
        let Dispatch { replica, request, rank, scope, .. } = dispatch;
        let row = (dispatch.relquery, dispatch.item.row);
        let (id, streams) = (replica, dispatch.item.generation.streams);
        let Some(replica) = self.replicas.get_mut(&id) else {
            let failure = Failure::Untried("the replica has left".into());
            return self.queue.failed(request, failure, now);
        };
        replica.sent(request, now);
        let abort = match &replica.transport {
            Transport::Local(local) => {
                local.tell(LocalCommand::Run(Box::new(dispatch.into_submission())));
                self.local.insert(row, request);
                None
            }
            Transport::Server { client, style } => {
                let ask = match style.ask(&dispatch.item, rank, scope) {
                    Ok(ask) => ask,
                    Err(reason) => {
                        replica.metrics.failed.inc();
                        replica.left(request);
                        let failure = Failure::Row(RowError::Refused(reason));
                        return self.queue.failed(request, failure, now);
                    }
                };
                let (client, shared) = (client.clone(), Arc::clone(&self.shared));
                let generation = Arc::clone(&dispatch.item.generation);
                let id = style.dialect.takes_request_ids().then_some(request.0);
                let headers = PassedOn::told(self.passed_on.get(&row.0), id, &self.shared.gateway);
                let task = async move {
                    let say = |text| shared.intake.tell_fleet(FleetMessage::Said { request, text });
                    let outcome = held(client.ask(&ask, headers, say).await, &generation);
                    shared.intake.tell_fleet(FleetMessage::Ended { request, outcome });
                };
                Some(self.factory.runtime.spawn(task).abort_handle())
            }
        };
        self.flying.insert(request, InFlightRow { replica: id, row, sent: now, streams, abort });
        Vec::new()
    }

    /// Takes in a report.
    pub(crate) fn poll(&mut self, message: FleetMessage, shared: &Shared) -> Vec<Event> {
        let (now, unix_ms) = (shared.clock.now(), shared.clock.unix_ms());
        // Reports, looks at health among them, are the loop's progress.
        shared.pulse.turned(now);
        match message {
            FleetMessage::Ended { request, outcome } => {
                let Some(flying) = self.land(request) else { return Vec::new() };
                // What its place was taken for: the ways to the requests' threads and back are in it.
                let took = now.since(flying.sent);
                self.ended((flying.replica, took), request, outcome, (now, unix_ms))
            }
            FleetMessage::Said { request, text } if self.flying.contains_key(&request) => {
                self.queue.text(request, text, now)
            }
            // Of a request that was called off or has moved.
            FleetMessage::Said { .. } => Vec::new(),
            FleetMessage::Looked { replica, result } => {
                let Some(replica) = self.replicas.get_mut(&replica) else { return Vec::new() };
                let result = replica.leads_to(result, &self.shared.gateway);
                let reason = result.as_ref().err().map(|unhealthy| unhealthy.reason.clone());
                if replica.looked(result, unix_ms) {
                    let (name, state) = (replica.name(), replica.state(now));
                    match reason {
                        None => tracing::info!(replica = name, state, "the replica is well"),
                        Some(reason) => {
                            tracing::warn!(replica = name, state, reason, "the replica is not well")
                        }
                    }
                }
                Vec::new()
            }
            FleetMessage::Reported { replica, kv_tokens } => {
                if let Some(replica) = self.replicas.get_mut(&replica) {
                    replica.kv_reported = kv_tokens;
                }
                Vec::new()
            }
            FleetMessage::Events { replica, events } => {
                let events = events.into_iter().flat_map(|event| self.local(replica, event, now));
                events.collect()
            }
            FleetMessage::Members(members) => {
                self.take_members(members);
                Vec::new()
            }
            FleetMessage::Evict { name } => {
                self.evict(&name);
                Vec::new()
            }
            FleetMessage::LeaseDemand(reply) => {
                let policy = self.queue.scheduler().policy;
                let capacity = |id: ReplicaId| self.replicas.get(&id).map(|replica| replica.size);
                // Whoever asked may have gone.
                let _ = reply.send(self.leases.reports(self.queue.demand(), policy, capacity));
                Vec::new()
            }
            FleetMessage::Leased { grants, until } => {
                self.leases.take(grants, until);
                Vec::new()
            }
        }
    }

    /// A request has ended.
    fn ended(
        &mut self,
        (replica, took): (ReplicaId, Nanos),
        request: RequestId,
        outcome: Outcome,
        (now, unix_ms): (Time, u64),
    ) -> Vec<Event> {
        // Its requests end with it: one that is not there any more has said nothing.
        let Some(replica) = self.replicas.get_mut(&replica) else { return Vec::new() };
        replica.metrics.try_seconds.observe(took.as_seconds());
        match outcome {
            Outcome::Answered { mut finish, logprobs, prompt } => {
                let mut events = scored_prompt(&self.queue, request, prompt);
                if let Some((relquery, row)) = self.queue.row_of(request).filter(|_| !logprobs.is_empty()) {
                    self.likelihoods.push(RowLikelihood { relquery, row, probability: None, logprobs });
                }
                replica.answered();
                // Of a text the gateway knows bytes, and no tokens.
                if matches!(&replica.transport, Transport::Server { style, .. } if style.form == PromptForm::Messages)
                {
                    finish.prompt.get_or_insert_default();
                }
                if self.queue.hold_usage(request, &mut finish) {
                    replica.metrics.overstated.inc();
                    tracing::warn!(replica = replica.name(), "a reply's usage is more than was asked for");
                }
                replica.metrics.answered(&finish);
                self.prices.extend(prices_of(&self.queue, request, replica));
                events.extend(self.queue.finished(request, finish, now));
                events
            }
            Outcome::Row(reason) => {
                replica.answered();
                replica.metrics.failed.inc();
                tracing::debug!(replica = replica.name(), reason, "a row failed");
                self.queue.failed(request, Failure::Row(RowError::Failed(reason)), now)
            }
            Outcome::Refused(reason) => {
                replica.answered();
                replica.metrics.failed.inc();
                tracing::debug!(replica = replica.name(), reason, "a row was refused");
                self.queue.failed(request, Failure::Row(RowError::Refused(reason)), now)
            }
            Outcome::Unfit(reason) => {
                replica.answered();
                replica.metrics.lost.inc();
                tracing::warn!(replica = replica.name(), reason, "an answer is not what was asked for");
                self.queue.failed(request, Failure::Unfit(reason), now)
            }
            Outcome::Lost(loss) => {
                let name = replica.name();
                tracing::warn!(replica = name, reason = loss.reason, kind = ?loss.kind, "a row was lost");
                replica.lost(&loss, now, unix_ms);
                replica.metrics.lost.inc();
                // What servers are called and say is for operators: it stands in the log.
                let told = loss.kind.told().to_owned();
                let failure = match loss.kind {
                    LossKind::Gone | LossKind::Loop | LossKind::Busy(_) => Failure::Untried(told),
                    LossKind::Failed | LossKind::Misconfigured => Failure::Replica(told),
                };
                // Before the row waits again, so that it is not sent where it comes from.
                let events = self.queue.failed(request, failure, now);
                self.stand(now);
                events
            }
        }
    }

    /// How likely the answers are that the last events have.
    pub(crate) fn take_likelihoods(&mut self) -> Vec<RowLikelihood> {
        std::mem::take(&mut self.likelihoods)
    }

    /// What tokens cost where the rows ran that the last events end.
    pub(crate) fn take_prices(&mut self) -> Vec<RowPrices> {
        std::mem::take(&mut self.prices)
    }

    /// An event of the local engine as one of the queue's; of a row that was called off, nothing.
    fn local(&mut self, replica: ReplicaId, event: Event, now: Time) -> Vec<Event> {
        let request = |relquery: RelQueryId, row: u32| self.local.get(&(relquery, row)).copied();
        match event {
            Event::Token { relquery, row, text, logprob, .. } => {
                let Some(request) = request(relquery, row) else { return Vec::new() };
                if let Some(logprob) = logprob {
                    self.local_answers.entry(request).or_default().logprobs.push(*logprob);
                }
                self.local_text(request, text, now)
            }
            Event::Text { relquery, row, text } => {
                request(relquery, row).map_or_else(Vec::new, |request| self.local_text(request, text, now))
            }
            Event::RowDone { relquery, row, end, usage, probability } => {
                let Some(request) = request(relquery, row) else { return Vec::new() };
                let LocalAnswer { prompt, logprobs, text, .. } =
                    self.local_answers.remove(&request).unwrap_or_default();
                // Now alone: what is told of a row that moves would be told again.
                let mut events = scored_prompt(&self.queue, request, prompt);
                if let Some((relquery, row)) = self.queue.row_of(request) {
                    self.likelihoods.push(RowLikelihood { relquery, row, probability, logprobs });
                }
                self.land(request);
                let finish = Finish {
                    text,
                    tokens: Vec::new(),
                    end,
                    prompt: Some(usage.prompt),
                    cached: usage.cached,
                    output: usage.output,
                };
                if let Some(replica) = self.replicas.get(&replica) {
                    replica.metrics.answered(&finish);
                    self.prices.extend(prices_of(&self.queue, request, replica));
                }
                events.extend(self.queue.finished(request, finish, now));
                events
            }
            Event::RowFailed { relquery, row, error, .. } => {
                let Some(request) = request(relquery, row) else { return Vec::new() };
                self.land(request);
                if let Some(replica) = self.replicas.get(&replica) {
                    replica.metrics.failed.inc();
                }
                self.queue.failed(request, Failure::Row(error), now)
            }
            Event::Prompt { relquery, row, tokens } => {
                if let Some(request) = request(relquery, row) {
                    self.local_answers.entry(request).or_default().prompt.push(tokens);
                }
                Vec::new()
            }
            Event::Started { .. } | Event::RelQueryDone { .. } => Vec::new(),
        }
    }

    /// Text of a row on the local engine. It goes out where the row streams, and else with the row's end: until
    /// then the row can move.
    fn local_text(&mut self, request: RequestId, text: String, now: Time) -> Vec<Event> {
        if self.flying.get(&request).is_some_and(|flying| flying.streams) {
            return self.queue.text(request, text, now);
        }
        self.local_answers.entry(request).or_default().say(&text);
        Vec::new()
    }

    /// How long nothing changes by itself.
    pub(crate) fn patience(&self, now: Time) -> Option<Nanos> {
        let changes = self.replicas.values().filter_map(|replica| replica.changes_at(now));
        let changes = changes.chain(self.leases.changes_at(now));
        let next = changes.chain(self.queue.next_timer()).min()?;
        Some(next.since(now))
    }

    /// The queue, with the first `most` relQueries.
    pub(crate) fn snapshot(&self, most: usize) -> (Stats, SchedulerSnapshot) {
        (self.queue.stats().totals, self.queue.snapshot(most))
    }

    /// Takes the relQueries that began since this was last asked.
    pub(crate) fn take_starts(&mut self) -> Vec<Start> {
        std::mem::take(&mut self.starts)
    }

    /// What it says of itself.
    pub(crate) fn view(&self, shared: &Shared) -> View {
        let now = shared.clock.now();
        let stats = self.queue.stats();
        // Both in the order of their numbers.
        let replicas = self.replicas.values().zip(&stats.replicas).map(|(replica, counts)| {
            let is_up = counts.health == Health::Up;
            ReplicaView {
                name: replica.name().to_owned(),
                source: replica.member.source,
                is_local: replica.is_local(),
                is_up,
                state: replica.state(now),
                breaker: replica.passage(now).name(),
                rows: counts.rows,
                rows_max: replica.size.rows_max,
                tokens: counts.tokens,
                tokens_max: replica.size.tokens_max,
                kv_reported: replica.kv_reported,
                prompt_scale: self.queue.prompt_scale(counts.id),
                cost: counts.cost,
                lease: self.leases.view(counts.id, now),
                gateways: Arc::clone(&replica.gateways),
                last_error: replica.last_error.clone(),
            }
        });
        View {
            policy: self.policy(),
            replicas: replicas.collect(),
            stats: stats.totals,
            cost: self.queue.cost(),
            is_measured: self.queue.knows_costs(),
            decision: self.queue.last_decision().to_string(),
        }
    }
}

/// What tokens cost where a row ran that a request was for.
fn prices_of(queue: &scheduler::Fleet, request: RequestId, replica: &Replica) -> Option<RowPrices> {
    queue.row_of(request).map(|(relquery, row)| RowPrices { relquery, row, prices: replica.prices })
}

/// How likely the tokens of the prompt were of a row that a request was for, piece by piece.
fn scored_prompt(
    queue: &scheduler::Fleet,
    request: RequestId,
    pieces: impl IntoIterator<Item = Arc<[PromptToken]>>,
) -> Vec<Event> {
    let Some((relquery, row)) = queue.row_of(request) else { return Vec::new() };
    pieces.into_iter().map(|tokens| Event::Prompt { relquery, row, tokens }).collect()
}
