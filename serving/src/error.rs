//! Everything that can go wrong with a request or one of its rows, as one enum.
//!
//! A row's failure is a [`RequestError`] too, kept on its relQuery beside healthy neighbours; so the enum is
//! `Clone`, and causes (a database error, say) are logged where they happen and never sent. Doors map it to
//! their own words (status codes, in `gateway`); it must not know them.

use base::{Millis, Money};
use store::StoreOutage;

use crate::queue_room::QueueBound;

/// Why a request, or one row of it, has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A field has a value that cannot be served.
    #[error("invalid `{field}`: {reason}")]
    Invalid {
        /// The field, as the client spelt it, with its path.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The body is not the JSON it must be.
    #[error("malformed JSON: {0}")]
    Malformed(String),
    /// Prompt and output do not fit the model's context, or the whole KV pool. The second sentence has the words by which
    /// clients of OpenAI's know it.
    #[error(
        "{prompt} prompt tokens and {output} output tokens exceed the {what} of {limit} tokens. This model's maximum \
         context length is {limit} tokens: please reduce the length of the prompt or of its output"
    )]
    TooLong {
        /// Prompt tokens of the row.
        prompt: u64,
        /// `max_tokens` of the request.
        output: u64,
        /// What they exceed: the model's context or the KV pool.
        what: &'static str,
        /// Its size.
        limit: u64,
    },
    /// The body or a part of it is larger than the configured limit.
    #[error("{what} exceeds the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit with its unit.
        limit: String,
    },
    /// Nothing here under that path or id, or nothing of this tenant's.
    #[error("{0} not found")]
    NotFound(String),
    /// No response of that id is kept, or none of this tenant's. OpenAI's words, by which clients know it.
    #[error("Response with id '{0}' not found.")]
    ResponseNotFound(String),
    /// No served model has the name that was asked for.
    #[error("the model `{name}` does not exist; served: {served}")]
    ModelNotFound {
        /// The name as it came.
        name: String,
        /// Those that are served.
        served: String,
    },
    /// A header that names one request for good came with another.
    #[error("`{0}` was used with another request before; send a new value with a new request")]
    KeyReused(&'static str),
    /// A header that names one request for good came with that request again, which another gateway runs.
    #[error("the request of this `{0}` is being run by another gateway; try again")]
    KeyInUse(&'static str),
    /// The bounded queue is full, or its last part is not this tenant's.
    #[error("{rows} {bound} {limit} (`limits.queue_rows_max`); retry after {retry_after}")]
    Overloaded {
        /// What is reached.
        bound: QueueBound,
        /// Unfinished rows that count against it.
        rows: u64,
        /// The bound.
        limit: u64,
        /// When a retry has a chance.
        retry_after: Millis,
    },
    /// What a tenant may compute in a day is spent.
    #[error(
        "`{setting}` is {max}: {used} tokens were computed today; the count begins anew in {retry_after:#}"
    )]
    BudgetSpent {
        /// What bounds it.
        setting: &'static str,
        /// Its value.
        max: u64,
        /// Tokens of today.
        used: u64,
        /// Until the day ends.
        retry_after: Millis,
    },
    /// What a tenant may compute is spent, or set aside for what runs.
    #[error(
        "the tenant's budget is {max} a {period} (`limits.{limit}`): {used:#} are spent, {reserved:#} set aside for \
         rows that run, and this request may take {asked:#}; the count begins anew in {retry_after:#}"
    )]
    TenantBudget {
        /// Its name among the tenant's limits: `day_tokens`.
        limit: &'static str,
        /// `day` or `month`.
        period: &'static str,
        /// The bound.
        max: BudgetUnits,
        /// What was used in this period.
        used: BudgetUnits,
        /// What rows may take which run.
        reserved: BudgetUnits,
        /// What this request may take.
        asked: BudgetUnits,
        /// Until the period ends.
        retry_after: Millis,
    },
    /// What a statement of SQL may compute is spent: its own bound, its session's, or its tenant's.
    #[error("{reason}")]
    StatementBudget {
        /// The bound, what is left, and what one more row may take.
        reason: String,
        /// Until there is more, where time brings it.
        retry_after: Option<Millis>,
    },
    /// The caller's key may not do this; what it lacks.
    #[error("this API key lacks the scope `{0}`: ask an operator for one that has it")]
    OutOfScope(String),
    /// A tenant asks more often than it may.
    #[error("the tenant may send {max} requests a minute; retry after {retry_after}")]
    RateLimit {
        /// The bound.
        max: u32,
        /// When one more may come.
        retry_after: Millis,
    },
    /// The tenant's bound on constraints is reached.
    #[error("`{field}`: {reason}; retry after {retry_after}")]
    Constraints {
        /// The field that asks for another constraint.
        field: String,
        /// The bound.
        reason: String,
        /// When a retry has a chance.
        retry_after: Millis,
    },
    /// More wait for something than may.
    #[error("more than {limit} {what}; retry after {retry_after}")]
    Busy {
        /// What waits.
        what: &'static str,
        /// How many may.
        limit: String,
        /// When a retry has a chance.
        retry_after: Millis,
    },
    /// The tenant keeps so much in tickets that another has no room.
    #[error(
        "no room for another ticket: those of this tenant may have {limit} bytes (limits.tenant_ticket_bytes_max) and have \
         {requests} of requests and {answers} of answers; this one would add {own_request} of its request and {own_answers} of \
         answers that it has by now (those still to come are taken whatever they are). Requests of relQueries go when their \
         tickets end, all goes when tickets expire (store.ticket_ms_max); retry after {retry_after}"
    )]
    TicketsFull {
        /// Bytes that all may have.
        limit: u64,
        /// What those that there are keep of requests.
        requests: u64,
        /// And of answers.
        answers: u64,
        /// What this one would keep of its request.
        own_request: u64,
        /// And of the answers that it has by now.
        own_answers: u64,
        /// When a retry has a chance.
        retry_after: Millis,
    },
    /// The server was started without what this needs.
    #[error("this server is not set up for this: its setting `{0}` is not set")]
    NotConfigured(&'static str),
    /// Nothing can be said of replicas of which none is in service.
    #[error("no replica is in service")]
    NoReplica,
    /// The work was cancelled by its owner.
    #[error("the relQuery was cancelled")]
    Cancelled,
    /// The caller's deadline passed first; the work was stopped.
    #[error("the deadline passed before the answer was complete")]
    Deadline,
    /// The server drains.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The executor is dead.
    #[error("the model executor has failed; the server needs a restart")]
    Dead,
    /// The database does not answer in time, or takes no writes.
    #[error("{}", of_outage(*.0))]
    NoDatabase(StoreOutage),
    /// One row failed in the engine.
    #[error("the row failed: {0}")]
    Row(String),
    /// Who runs the model does not take one row as it is.
    #[error("the row was refused: {0}")]
    RowRefused(String),
    /// Every server that took the work up ended with it, and none got anything done of it.
    #[error("the server ended {times} times while it worked on this")]
    ServerEnded {
        /// How many did.
        times: u64,
    },
    /// What was told of an answer stays as it was: the answer was begun anew, and is another one.
    #[error(
        "the answer was begun anew, for its server had ended, and is another than was told so far; read the response \
         from its first event"
    )]
    AnswerChanged,
    /// Anything whose cause is ours; it is logged, never sent.
    #[error("internal error")]
    Internal,
}

/// An amount of what a budget counts. `{:#}` leaves out what it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetUnits {
    Tokens(u64),
    Cost(Money),
}

impl BudgetUnits {
    /// What is left of it after another of its kind.
    pub fn after(self, used: Self) -> Self {
        let left = self.count().saturating_sub(used.count());
        match self {
            Self::Tokens(_) => Self::Tokens(left),
            Self::Cost(_) => Self::Cost(Money(left)),
        }
    }

    /// For a comparison with another of its kind.
    pub(crate) fn count(self) -> u64 {
        match self {
            Self::Tokens(count) | Self::Cost(Money(count)) => count,
        }
    }
}

impl std::fmt::Display for BudgetUnits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tokens(count) if f.alternate() => write!(f, "{count}"),
            Self::Tokens(count) => write!(f, "{count} tokens"),
            Self::Cost(cost) if f.alternate() => write!(f, "{cost}"),
            Self::Cost(cost) => write!(f, "{cost} in money"),
        }
    }
}

impl RequestError {
    /// A field with a bad value.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }

    /// A model that none of these is.
    pub fn unknown_model<'a>(name: impl Into<String>, served: impl Iterator<Item = &'a str>) -> Self {
        let served: Vec<String> = served.map(|name| format!("`{name}`")).collect();
        let served = if served.is_empty() { "none".to_owned() } else { served.join(", ") };
        Self::ModelNotFound { name: name.into(), served }
    }

    /// The error's class, in OpenAI's words where they have one.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Invalid { .. }
            | Self::Malformed(_)
            | Self::TooLong { .. }
            | Self::TooLarge { .. }
            | Self::NotFound(_)
            | Self::ResponseNotFound(_)
            | Self::ModelNotFound { .. }
            | Self::KeyReused(_)
            | Self::KeyInUse(_)
            | Self::RowRefused(_) => "invalid_request_error",
            Self::Overloaded { .. }
            | Self::RateLimit { .. }
            | Self::Constraints { .. }
            | Self::Busy { .. }
            | Self::TicketsFull { .. } => "rate_limit_exceeded",
            Self::BudgetSpent { .. } | Self::TenantBudget { .. } | Self::StatementBudget { .. } => {
                "insufficient_quota"
            }
            Self::OutOfScope(_) => "permission_error",
            Self::NotConfigured(_) => "not_configured",
            Self::Cancelled => "cancelled",
            Self::Deadline => "timeout",
            Self::ShuttingDown | Self::Dead | Self::NoDatabase(_) | Self::NoReplica => "service_unavailable",
            Self::Row(_) | Self::ServerEnded { .. } | Self::AnswerChanged | Self::Internal => "server_error",
        }
    }

    /// A word for programs, where one helps.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::TooLong { .. } => Some("context_length_exceeded"),
            Self::ModelNotFound { .. } => Some("model_not_found"),
            Self::Overloaded { .. } => Some("queue_full"),
            Self::BudgetSpent { .. } | Self::TenantBudget { .. } | Self::StatementBudget { .. } => {
                Some("budget_spent")
            }
            Self::OutOfScope(_) => Some("insufficient_scope"),
            Self::RateLimit { .. } => Some("rate_limit"),
            Self::Constraints { .. } => Some("constraint_limit"),
            Self::Busy { .. } | Self::TicketsFull { .. } => Some("busy"),
            Self::NotConfigured(_) => Some("not_configured"),
            Self::NoReplica => Some("no_replica"),
            Self::Malformed(_) => Some("malformed_json"),
            Self::TooLarge { .. } => Some("too_large"),
            Self::KeyReused(_) => Some("idempotency_key_reused"),
            Self::KeyInUse(_) => Some("idempotency_key_in_use"),
            Self::Cancelled => Some("cancelled"),
            Self::Deadline => Some("deadline_exceeded"),
            Self::ShuttingDown => Some("shutting_down"),
            Self::Dead => Some("executor_dead"),
            Self::NoDatabase(StoreOutage::DiskFull) => Some("disk_full"),
            Self::NoDatabase(StoreOutage::Away | StoreOutage::Unwritable | StoreOutage::FileGone) => {
                Some("database_unavailable")
            }
            Self::Row(_) => Some("row_failed"),
            Self::RowRefused(_) => Some("row_refused"),
            Self::ServerEnded { .. } => Some("server_ended"),
            Self::AnswerChanged => Some("answer_changed"),
            Self::Invalid { .. } | Self::NotFound(_) | Self::ResponseNotFound(_) | Self::Internal => None,
        }
    }

    /// The field to blame, where there is one.
    pub fn param(&self) -> Option<String> {
        match self {
            Self::Invalid { field, .. } | Self::Constraints { field, .. } => Some(field.clone()),
            Self::TooLong { .. } => Some("max_tokens".into()),
            Self::ModelNotFound { .. } => Some("model".into()),
            Self::KeyReused(header) | Self::KeyInUse(header) => Some((*header).into()),
            Self::Busy { .. }
            | Self::TicketsFull { .. }
            | Self::NotConfigured(_)
            | Self::NoReplica
            | Self::Malformed(_)
            | Self::TooLarge { .. }
            | Self::NotFound(_)
            | Self::ResponseNotFound(_)
            | Self::Overloaded { .. }
            | Self::BudgetSpent { .. }
            | Self::TenantBudget { .. }
            | Self::StatementBudget { .. }
            | Self::OutOfScope(_)
            | Self::RateLimit { .. }
            | Self::Cancelled
            | Self::Deadline
            | Self::ShuttingDown
            | Self::Dead
            | Self::NoDatabase(_)
            | Self::Row(_)
            | Self::RowRefused(_)
            | Self::ServerEnded { .. }
            | Self::AnswerChanged
            | Self::Internal => None,
        }
    }
}

/// Logs a cause that is ours and hides it from the client.
pub fn internal(cause: impl std::fmt::Display) -> RequestError {
    tracing::error!(%cause, "internal error");
    RequestError::Internal
}

/// What a client is told of an outage of the store.
fn of_outage(outage: StoreOutage) -> &'static str {
    match outage {
        StoreOutage::Away => "the server's database is away or busy; try again",
        StoreOutage::Unwritable => "the server's database takes no writes for now; try again",
        StoreOutage::DiskFull => {
            "the disk of the server's database is full, or of temporary files; try again when it has room"
        }
        StoreOutage::FileGone => {
            "the file of the server's database is gone, and what is written now would be lost; try again when it is back"
        }
    }
}

/// What a client is told of the store's failure.
pub fn of_store(error: store::Error) -> RequestError {
    let Some(outage) = error.outage() else { return internal(error) };
    tracing::warn!(%error, "a request met no database");
    RequestError::NoDatabase(outage)
}

/// What keeps a store error from a client.
pub fn stored<T>(result: Result<T, store::Error>) -> Result<T, RequestError> {
    result.map_err(of_store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_what_is_wrong_with_the_database() {
        for (error, code, words) in [
            (store::Error::Away("gone".into()), "database_unavailable", "away or busy"),
            (store::Error::Unwritable("read-only".into()), "database_unavailable", "takes no writes"),
            (store::Error::DiskFull("13".into()), "disk_full", "disk of the server's database is full"),
        ] {
            let refused = of_store(error);
            assert_eq!((refused.kind(), refused.code()), ("service_unavailable", Some(code)));
            assert!(refused.to_string().contains(words), "{refused}");
        }
        assert_eq!(of_store(store::Error::Missing("tenant")), RequestError::Internal);
    }
}
