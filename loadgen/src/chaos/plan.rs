//! The plan of faults: what happens to which process or connection, from which step to which. Pure: a seed, a
//! number of steps and the kinds that this machine can have give the same plan for ever.

use std::fmt;

use clap::ValueEnum;

use crate::random::SplitMix64;

/// How many gateways there are.
pub(super) const GATEWAYS: usize = 2;
/// How many replicas there are.
pub(super) const REPLICAS: usize = 2;
/// Steps before the first fault and after the last, so that there is work when it comes and a while to recover in.
const CALM: u32 = 2;
/// The longest fault, in steps.
const LASTS_MAX: u64 = 4;
/// The most steps between the beginnings of two faults: fewer than the longest one lasts, so that some overlap.
const GAP_MAX: u64 = 3;

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum FaultKind {
    /// SIGKILL of a gateway; it is started again at the end.
    KillGateway,
    /// SIGSTOP of a gateway, then SIGCONT.
    StopGateway,
    /// A gateway may open hardly any more files.
    LimitFiles,
    /// A gateway's wall clock is off.
    JumpClock,
    /// SIGKILL of a replica; it is started again at the end.
    KillReplica,
    /// SIGSTOP of a replica, then SIGCONT.
    StopReplica,
    /// A replica's disk is full.
    FillReplicaDisk,
    /// Each write to a replica's disk takes long.
    SlowReplicaDisk,
    /// What goes between a gateway and a replica comes late.
    DelayReplica,
    /// Connections between a gateway and a replica are reset, new ones too.
    ResetReplica,
    /// Nothing passes between a gateway and a replica, and nobody is told.
    CutReplica,
    /// What goes between a gateway and the database comes late.
    DelayDatabase,
    /// Connections between a gateway and the database are reset, new ones too.
    ResetDatabase,
    /// Nothing passes between a gateway and the database, and nobody is told.
    CutDatabase,
    /// What a gateway says reaches the database, whose answers are lost; then the connections are reset.
    LoseDatabaseReplies,
    /// The database crashes (immediate shutdown) and is started again.
    RestartDatabase,
    /// SIGSTOP of all processes of the database, then SIGCONT.
    StopDatabase,
    /// The database's disk is full.
    FillDatabaseDisk,
    /// Each write to the database's disk takes long.
    SlowDatabaseDisk,
}

/// What a fault happens to: one fault at a time each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Gateway(usize),
    Replica(usize),
    /// Between a gateway and a replica.
    ReplicaLink(usize, usize),
    /// Between a gateway and the database.
    DatabaseLink(usize),
    Database,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway(gateway) => write!(f, "gateway {gateway}"),
            Self::Replica(replica) => write!(f, "replica {replica}"),
            Self::ReplicaLink(gateway, replica) => write!(f, "gateway {gateway} to replica {replica}"),
            Self::DatabaseLink(gateway) => write!(f, "gateway {gateway} to the database"),
            Self::Database => f.write_str("the database"),
        }
    }
}

impl FaultKind {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn subject(self, gateway: usize, replica: usize) -> Subject {
        match self {
            Self::KillGateway | Self::StopGateway | Self::LimitFiles | Self::JumpClock => {
                Subject::Gateway(gateway)
            }
            Self::KillReplica | Self::StopReplica | Self::FillReplicaDisk | Self::SlowReplicaDisk => {
                Subject::Replica(replica)
            }
            Self::DelayReplica | Self::ResetReplica | Self::CutReplica => {
                Subject::ReplicaLink(gateway, replica)
            }
            Self::DelayDatabase | Self::ResetDatabase | Self::CutDatabase | Self::LoseDatabaseReplies => {
                Subject::DatabaseLink(gateway)
            }
            Self::RestartDatabase | Self::StopDatabase | Self::FillDatabaseDisk | Self::SlowDatabaseDisk => {
                Subject::Database
            }
        }
    }
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub kind: FaultKind,
    pub subject: Subject,
    /// The step at which it begins.
    pub from: u32,
    /// The step at which it ends.
    pub until: u32,
    /// How large it is, 0 to 999: what that means is up to the kind.
    pub permille: u16,
}

/// All faults of a run, in the order of their beginnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FaultSchedule {
    pub steps: u32,
    pub faults: Vec<Fault>,
}

impl FaultSchedule {
    /// Draws a plan. Every kind comes once before one comes again.
    pub(super) fn draw(seed: u64, steps: u32, kinds: &[FaultKind]) -> Self {
        let mut random = SplitMix64::new(seed, "faults");
        let mut faults: Vec<Fault> = Vec::new();
        let mut round = Vec::new();
        let mut step = CALM;
        while step + CALM < steps {
            if round.is_empty() {
                round = shuffled(kinds, &mut random);
            }
            let Some(kind) = round.pop() else { break };
            let [gateway, replica] = [GATEWAYS, REPLICAS].map(|count| below(count, &mut random));
            let until = step + small(random.between(1, LASTS_MAX));
            let permille = random.between(0, 999) as u16;
            let subject = kind.subject(gateway, replica);
            let fault = Fault { kind, subject, from: step, until: until.min(steps - 1), permille };
            if faults.iter().all(|other| other.subject != subject || other.until <= step) {
                faults.push(fault);
            }
            step += small(random.between(1, GAP_MAX));
        }
        Self { steps, faults }
    }

    /// Those that end at a step, then those that begin.
    pub(super) fn at(&self, step: u32) -> (Vec<Fault>, Vec<Fault>) {
        let those = |is_it: &dyn Fn(&Fault) -> bool| self.faults.iter().copied().filter(is_it).collect();
        (those(&|fault| fault.until == step), those(&|fault| fault.from == step))
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn below(count: usize, random: &mut SplitMix64) -> usize {
    random.between(0, count.saturating_sub(1) as u64) as usize
}

/// Fisher and Yates.
fn shuffled(kinds: &[FaultKind], random: &mut SplitMix64) -> Vec<FaultKind> {
    let mut kinds = kinds.to_vec();
    for last in (1..kinds.len()).rev() {
        kinds.swap(last, below(last + 1, random));
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: u32 = 300;

    #[test]
    fn a_seed_always_draws_the_same_plan_and_another_seed_another() {
        let kinds = FaultKind::value_variants();
        assert_eq!(FaultSchedule::draw(7, STEPS, kinds), FaultSchedule::draw(7, STEPS, kinds));
        assert_ne!(FaultSchedule::draw(7, STEPS, kinds).faults, FaultSchedule::draw(8, STEPS, kinds).faults);
    }

    #[test]
    fn every_kind_comes_and_nothing_has_two_faults_at_once() {
        let plan = FaultSchedule::draw(3, STEPS, FaultKind::value_variants());
        for kind in FaultKind::value_variants() {
            assert!(plan.faults.iter().any(|fault| fault.kind == *kind), "{kind:?}");
        }
        for (number, fault) in plan.faults.iter().enumerate() {
            assert!(fault.from < fault.until && fault.until < STEPS, "{fault:?}");
            let mut earlier = plan.faults[..number].iter();
            assert!(earlier.all(|other| other.subject != fault.subject || other.until <= fault.from));
        }
        let overlaps = |fault: &Fault| {
            plan.faults.iter().any(|other| other.from < fault.from && fault.from < other.until)
        };
        assert!(plan.faults.iter().any(overlaps), "some come together");
    }

    #[test]
    fn each_fault_begins_and_ends_at_one_step() {
        let plan = FaultSchedule::draw(5, STEPS, FaultKind::value_variants());
        let (ended, begun): (Vec<_>, Vec<_>) = (0..STEPS).map(|step| plan.at(step)).unzip();
        assert_eq!(begun.concat(), plan.faults);
        assert_eq!(ended.concat().len(), plan.faults.len());
        assert_eq!(FaultSchedule::draw(5, STEPS, &[]).faults, []);
    }
}
