//! The published benchmark: its data, its four methods, and what is said of each.

use std::sync::Arc;

use base::{Millis, Nanos, TokenCount};
use ir::bucket::BucketSettings;
use scheduler::fleet::FleetConfig;

use super::counted::CountedReplica;
use super::data::{Data, RowSource, RowTokens};
use super::l4::L4;
use super::method::Method;
use super::methods::{Buckets, Continuous, FleetLimits, Naive, Sorted};
use super::replica::{Replica, SchedulerReplica};
use super::world::{FleetOutcome, WorldError, run};

/// What is run on what.
#[derive(Clone, Debug)]
pub struct Bench {
    pub replicas: usize,
    pub rows: usize,
    /// Different prefixes.
    pub prefixes: u32,
    pub tokens: RowTokens,
    /// What the source can supply.
    pub rows_per_second: u64,
    /// Rows of a naive batch.
    pub batch_rows: usize,
    /// What lies between two naive batches: tokenizing the next, handing over the last.
    pub batch_gap: Millis,
    /// Rows in flight on a replica, where rows come one by one.
    pub in_flight: usize,
    /// Rows for each replica that may wait between the buffer and the replicas.
    pub queue: usize,
    /// Nanoseconds of a comparison of the global sort, on one core.
    pub compare_ns: u64,
    /// The replicas.
    pub machine: L4,
    /// Whether each replica is the real scheduler, or its counts.
    pub exact: bool,
    pub buffer: BucketSettings,
    /// The router.
    pub fleet: FleetConfig,
    /// Seed of the data.
    pub seed: u64,
}

impl Default for Bench {
    /// The published sizes and Daft's defaults.
    fn default() -> Self {
        let fleet = FleetConfig::default();
        Self {
            replicas: 128,
            rows: 200_000,
            prefixes: 512,
            tokens: RowTokens { prefix: 256, own: 256, output: 128 },
            rows_per_second: 10_000,
            batch_rows: 512,
            batch_gap: Millis(250),
            in_flight: 80,
            queue: 64,
            compare_ns: 100,
            machine: L4::default(),
            exact: false,
            buffer: BucketSettings::default(),
            // Remembered is what the KV memory holds; looked at is what waits, some 20 rows a bucket.
            fleet: FleetConfig {
                prefixes_max: L4::kv_tokens() / fleet.prefix_block,
                bulk_window: 1_024,
                ..fleet
            },
            seed: 1,
        }
    }
}

/// A method by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodKind {
    /// Batches, one after the other.
    Naive,
    /// Rows as they come.
    Continuous,
    /// A global sort before anything runs.
    Sorted,
    /// Dynamic prefix bucketing.
    Buckets,
}

impl MethodKind {
    /// All, in the order of the blog.
    pub const ALL: [Self; 4] = [Self::Naive, Self::Continuous, Self::Sorted, Self::Buckets];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive batching",
            Self::Continuous => "continuous batching",
            Self::Sorted => "global sort",
            Self::Buckets => "prefix buckets",
        }
    }
}

impl Bench {
    /// Runs one method.
    pub fn run(&self, kind: MethodKind) -> Result<FleetOutcome, WorldError> {
        let data = Arc::new(Data::new(self.rows, self.prefixes, self.tokens, self.seed));
        let source = RowSource::new(self.rows, self.rows_per_second);
        let (replicas, in_flight) = (self.replicas, self.in_flight);
        let mut method: Box<dyn Method> = match kind {
            MethodKind::Naive => {
                let gap = Nanos::from(self.batch_gap);
                Box::new(Naive::new(data, source, replicas, self.batch_rows, gap))
            }
            MethodKind::Continuous => Box::new(Continuous::new(data, source, replicas, in_flight)),
            MethodKind::Sorted => Box::new(Sorted::new(data, source, replicas, self.sort(), in_flight)),
            MethodKind::Buckets => {
                let limits = FleetLimits { replicas, in_flight, queue: self.queue };
                Box::new(Buckets::new(data, source, limits, self.buffer, self.fleet.clone())?)
            }
        };
        let replica = |_| -> Result<Box<dyn Replica>, WorldError> {
            Ok(match self.exact {
                true => Box::new(SchedulerReplica::new(self.machine)?),
                false => Box::new(CountedReplica::new(self.machine)),
            })
        };
        let replicas = (0..replicas).map(replica).collect::<Result<_, _>>()?;
        run(replicas, self.rows as u64, method.as_mut())
    }

    /// `rows log2(rows)` comparisons on one core: nothing for moving rows between machines, so a kind
    /// estimate.
    fn sort(&self) -> Nanos {
        let rows = self.rows as u64;
        Nanos(rows * u64::from(rows.max(2).ilog2()) * self.compare_ns)
    }

    /// Tokens of all prompts.
    pub fn prompt_tokens(&self) -> TokenCount {
        TokenCount(self.rows as u64 * (self.tokens.prefix + self.tokens.own))
    }
}
