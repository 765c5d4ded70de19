//! Which row goes where: the four methods of the published benchmark.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{End, Nanos, RequestId, Time, TokenId};
use ir::bucket::{BucketSettings, Buffer};
use scheduler::SchedulerConfig;
use scheduler::fleet::{Finish, Fleet, FleetConfig, ReplicaConfig, ReplicaId};

use super::data::{Data, RowSource};
use super::method::{Method, RowDispatch};
use super::replica::{EndedRow, bulk};

/// Batches of so many rows, one at a time on a replica; the next one when all of it has ended and a gap is
/// over.
pub struct Naive {
    data: Arc<Data>,
    source: RowSource,
    pending: VecDeque<usize>,
    batch: usize,
    gap: Nanos,
    /// Rows left of each replica's batch, and when it is ready for another.
    replicas: Vec<(usize, Time)>,
    tag: u64,
}

impl Naive {
    /// Batches of `batch` rows with `gap` between them.
    pub fn new(data: Arc<Data>, source: RowSource, replicas: usize, batch: usize, gap: Nanos) -> Self {
        let replicas = vec![(0, Time(0)); replicas];
        Self { data, source, pending: VecDeque::new(), batch, gap, replicas, tag: 0 }
    }
}

impl Method for Naive {
    fn send(&mut self, now: Time) -> Vec<RowDispatch> {
        while let Some(row) = self.source.pull(now) {
            self.pending.push_back(row);
        }
        let mut sends = Vec::new();
        for (replica, (left, ready)) in self.replicas.iter_mut().enumerate() {
            let enough = self.pending.len() >= self.batch || self.source.is_over();
            if *left > 0 || *ready > now || !enough {
                continue;
            }
            for row in self.pending.drain(..self.batch.min(self.pending.len())) {
                self.tag += 1;
                *left += 1;
                sends.push(RowDispatch { replica, tag: self.tag, item: self.data.item(row) });
            }
        }
        sends
    }

    fn ended(&mut self, replica: usize, _: EndedRow, now: Time) {
        let (left, ready) = &mut self.replicas[replica];
        *left -= 1;
        if *left == 0 {
            *ready = now + self.gap;
        }
    }

    fn looks_at(&self, now: Time) -> Option<Time> {
        let ready = self.replicas.iter().filter(|(left, ready)| *left == 0 && *ready > now);
        let ready = ready.map(|(_, ready)| *ready).min().filter(|_| !self.pending.is_empty());
        [self.source.next_look(now), ready].into_iter().flatten().min()
    }

    fn has_read_all(&self) -> bool {
        self.source.is_over()
    }
}

/// Rows as they come, each to the replica with the fewest in flight, as long as one has room.
pub struct Continuous {
    data: Arc<Data>,
    source: RowSource,
    in_flight: usize,
    replicas: Vec<usize>,
    tag: u64,
}

impl Continuous {
    /// At most `in_flight` rows on a replica.
    pub fn new(data: Arc<Data>, source: RowSource, replicas: usize, in_flight: usize) -> Self {
        Self { data, source, in_flight, replicas: vec![0; replicas], tag: 0 }
    }
}

impl Method for Continuous {
    fn send(&mut self, now: Time) -> Vec<RowDispatch> {
        let mut sends = Vec::new();
        loop {
            let least = self.replicas.iter().enumerate().min_by_key(|(_, rows)| **rows);
            let Some((replica, _)) = least.filter(|(_, rows)| **rows < self.in_flight) else { return sends };
            let Some(row) = self.source.pull(now) else { return sends };
            self.tag += 1;
            self.replicas[replica] += 1;
            sends.push(RowDispatch { replica, tag: self.tag, item: self.data.item(row) });
        }
    }

    fn ended(&mut self, replica: usize, _: EndedRow, _: Time) {
        self.replicas[replica] -= 1;
    }

    fn looks_at(&self, now: Time) -> Option<Time> {
        self.source.next_look(now)
    }

    fn has_read_all(&self) -> bool {
        self.source.is_over()
    }
}

/// All rows read and sorted first; then each replica its own stretch of the order, as [`Continuous`].
pub struct Sorted {
    data: Arc<Data>,
    source: RowSource,
    in_flight: usize,
    /// How long the sort takes, and when it is done.
    sort: Nanos,
    done: Option<Time>,
    /// What is left of each replica's stretch, and its rows in flight.
    replicas: Vec<(VecDeque<usize>, usize)>,
    tag: u64,
}

impl Sorted {
    /// A sort of `sort`, then at most `in_flight` rows on a replica.
    pub fn new(data: Arc<Data>, source: RowSource, replicas: usize, sort: Nanos, in_flight: usize) -> Self {
        let rows = data.sorted();
        let bound = |replica: usize| replica * rows.len() / replicas;
        let replicas =
            (0..replicas).map(|place| (rows[bound(place)..bound(place + 1)].to_vec().into(), 0)).collect();
        Self { data, source, in_flight, sort, done: None, replicas, tag: 0 }
    }
}

impl Method for Sorted {
    fn send(&mut self, now: Time) -> Vec<RowDispatch> {
        while self.source.pull(now).is_some() {}
        if self.source.is_over() && self.done.is_none() {
            self.done = Some(now + self.sort);
        }
        if self.done.is_none_or(|done| done > now) {
            return Vec::new();
        }
        let mut sends = Vec::new();
        for (replica, (rows, flying)) in self.replicas.iter_mut().enumerate() {
            while *flying < self.in_flight
                && let Some(row) = rows.pop_front()
            {
                self.tag += 1;
                *flying += 1;
                sends.push(RowDispatch { replica, tag: self.tag, item: self.data.item(row) });
            }
        }
        sends
    }

    fn ended(&mut self, replica: usize, _: EndedRow, _: Time) {
        self.replicas[replica].1 -= 1;
    }

    fn looks_at(&self, now: Time) -> Option<Time> {
        let done = self.done.filter(|done| *done > now);
        self.source.next_look(now).into_iter().chain(done).min()
    }

    fn has_read_all(&self) -> bool {
        self.source.is_over()
    }
}

/// How much runs and waits in a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetLimits {
    /// How many replicas there are.
    pub replicas: usize,
    /// Rows that one of them runs at a time.
    pub in_flight: usize,
    /// Rows for each of them that may wait in the fleet.
    pub queue: usize,
}

/// Dynamic prefix bucketing: a bounded buffer that lets the largest bucket go first, and the fleet's router.
pub struct Buckets {
    data: Arc<Data>,
    source: RowSource,
    buffer: Buffer<TokenId, usize>,
    /// The queue and the router under test.
    pub fleet: Fleet,
    /// Rows that may wait in the fleet, beside those in the buffer.
    queue_max: usize,
    waiting: usize,
    next: u64,
}

impl Buckets {
    /// Replicas behind a buffer and the fleet's router.
    pub fn new(
        data: Arc<Data>,
        source: RowSource,
        limits: FleetLimits,
        buffer: BucketSettings,
        fleet: FleetConfig,
    ) -> Result<Self, scheduler::ConfigError> {
        let FleetLimits { replicas, in_flight, queue } = limits;
        let replica = ReplicaConfig { rows_max: in_flight as u32, tokens_max: None };
        let each = (0..replicas).map(|id| (ReplicaId(id as u32), replica));
        let fleet = Fleet::new(fleet, SchedulerConfig::default(), each)?;
        let buffer = Buffer::new(buffer);
        Ok(Self { data, source, buffer, fleet, queue_max: replicas * queue, waiting: 0, next: 0 })
    }

    /// Fills the buffer from the source and the fleet from the buffer, as far as both go.
    fn fill(&mut self, now: Time) {
        loop {
            while !self.buffer.is_full()
                && let Some(row) = self.source.pull(now)
            {
                let prompt = self.data.prompt(row);
                let bytes = prompt.len() as u64 * 4;
                self.buffer.push(prompt, bytes, row);
            }
            if self.waiting >= self.queue_max {
                return;
            }
            let must = self.source.is_over() || self.waiting == 0;
            let Some(bucket) = self.buffer.pop(self.queue_max, must) else { return };
            self.waiting += bucket.rows.len();
            self.next += 1;
            let items = bucket.rows.into_iter().map(|row| self.data.item(row)).collect();
            let taken = self.fleet.submit(bulk(self.next, items, now));
            debug_assert_eq!(taken, Ok(()), "the queue is far below its limits");
        }
    }
}

impl Method for Buckets {
    fn send(&mut self, now: Time) -> Vec<RowDispatch> {
        let mut sends = Vec::new();
        loop {
            self.fill(now);
            let sent = self.fleet.dispatch(now);
            if sent.is_empty() {
                return sends;
            }
            self.waiting -= sent.len();
            let sent = sent.into_iter();
            sends.extend(sent.map(|sent| RowDispatch {
                replica: sent.replica.0 as usize,
                tag: sent.request.0,
                item: sent.item,
            }));
        }
    }

    fn ended(&mut self, _: usize, ended: EndedRow, now: Time) {
        let finish = Finish {
            end: End::Length,
            prompt: Some(ended.usage.prompt),
            cached: ended.usage.cached,
            output: ended.usage.output,
            text: String::new(),
            tokens: Vec::new(),
        };
        self.fleet.finished(RequestId(ended.tag), finish, now);
    }

    fn looks_at(&self, now: Time) -> Option<Time> {
        self.source.next_look(now)
    }

    fn has_read_all(&self) -> bool {
        self.source.is_over()
    }
}
