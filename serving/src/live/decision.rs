//! Decisions of the scheduler that are kept for the last minutes, whether anybody looks or not: which relQuery
//! began, and which one it left waiting. One for each relQuery, so that they are as few as records are.

use base::Time;
use scheduler::Policy;
use scheduler::snapshot::RelQueryStatus;

use super::RelQueryName;

/// A relQuery as a decision found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// How it stood.
    pub status: RelQueryStatus,
    /// How it is called outside.
    pub name: RelQueryName,
}

/// A relQuery began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRecord {
    /// When its first step was planned; in a fleet, when its first row was sent.
    pub at: Time,
    /// The policy in force.
    pub policy: Policy,
    /// It.
    pub first: Contender,
    /// Of those with rows that waited, the one with the most.
    pub rival: Option<Contender>,
}
