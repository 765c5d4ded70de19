//! Everything that can go wrong at the edge, as one enum, and its one mapping to status codes and
//! the OpenAI error object `{"error":{"message","type","param","code"}}`.
//!
//! A row's failure is an [`ApiError`] too, kept on its board beside healthy neighbours; so the enum
//! is `Clone` and causes (a database error, say) are logged where they happen and never sent.

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, RETRY_AFTER};
use actix_web::{HttpResponse, ResponseError};
use base::Millis;
use serde::Serialize;
use utoipa::ToSchema;

/// What a client can be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// No key, or one that is not (any more) valid.
    #[error("unknown or revoked API key; send it as `Authorization: Bearer rs-...`")]
    Unauthorized,
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
    /// Prompt and output do not fit the model's context, or the whole KV pool.
    #[error("{prompt} prompt tokens and {output} output tokens exceed the {what} of {limit} tokens")]
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
    /// The body has a content type that is not served.
    #[error("unsupported content type; send application/json")]
    MediaType,
    /// Nothing here under that path or id, or nothing of this tenant's.
    #[error("{0} not found")]
    NotFound(String),
    /// The model asked for is not the one served.
    #[error("the model `{0}` does not exist; GET /v1/models lists what does")]
    ModelNotFound(String),
    /// The path exists, but not with this method.
    #[error("method not allowed here; allowed: {0}")]
    MethodNotAllowed(&'static str),
    /// A header that names one request for good came with another.
    #[error("`{0}` was used with another request before; send a new value with a new request")]
    KeyReused(&'static str),
    /// The body took too long to arrive.
    #[error("the request body did not arrive in time")]
    BodyTimeout,
    /// The bounded queue is full.
    #[error("{rows} rows are waiting already and the limit is {limit}; retry after {retry_after}")]
    Overloaded {
        /// Unfinished rows.
        rows: u64,
        /// The bound.
        limit: u64,
        /// When a retry has a chance.
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
    /// The server was started without what this needs.
    #[error("this server is not set up for this: its setting `{0}` is not set")]
    NotConfigured(&'static str),
    /// Only the local engine does this.
    #[error("{0} need the local engine, and this server's rows run on other executors too")]
    NeedsEngine(&'static str),
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
    /// The database does not answer, or not in time.
    #[error("the server's database is away or busy; try again")]
    NoDatabase,
    /// One row failed in the engine.
    #[error("the row failed: {0}")]
    Row(String),
    /// Who runs the model does not take one row as it is.
    #[error("the row was refused: {0}")]
    RowRefused(String),
    /// Anything whose cause is ours; it is logged, never sent.
    #[error("internal error")]
    Internal,
}

impl ApiError {
    /// A field with a bad value.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }

    /// The error's class, in OpenAI's words where they have one.
    fn kind(&self) -> &'static str {
        match self {
            Self::Unauthorized => "authentication_error",
            Self::Invalid { .. }
            | Self::Malformed(_)
            | Self::TooLong { .. }
            | Self::TooLarge { .. }
            | Self::MediaType
            | Self::NotFound(_)
            | Self::ModelNotFound(_)
            | Self::MethodNotAllowed(_)
            | Self::KeyReused(_)
            | Self::RowRefused(_)
            | Self::BodyTimeout => "invalid_request_error",
            Self::Overloaded { .. } | Self::Constraints { .. } | Self::Busy { .. } => "rate_limit_exceeded",
            Self::NotConfigured(_) | Self::NeedsEngine(_) => "not_configured",
            Self::Cancelled => "cancelled",
            Self::Deadline => "timeout",
            Self::ShuttingDown | Self::Dead | Self::NoDatabase => "service_unavailable",
            Self::Row(_) | Self::Internal => "server_error",
        }
    }

    /// A word for programs, where one helps.
    fn code(&self) -> Option<&'static str> {
        match self {
            Self::Unauthorized => Some("invalid_api_key"),
            Self::TooLong { .. } => Some("context_length_exceeded"),
            Self::ModelNotFound(_) => Some("model_not_found"),
            Self::Overloaded { .. } => Some("queue_full"),
            Self::Constraints { .. } => Some("constraint_limit"),
            Self::Busy { .. } => Some("busy"),
            Self::NotConfigured(_) => Some("not_configured"),
            Self::NeedsEngine(_) => Some("needs_engine"),
            Self::Malformed(_) => Some("malformed_json"),
            Self::TooLarge { .. } => Some("too_large"),
            Self::KeyReused(_) => Some("idempotency_key_reused"),
            Self::Cancelled => Some("cancelled"),
            Self::Deadline => Some("deadline_exceeded"),
            Self::ShuttingDown => Some("shutting_down"),
            Self::Dead => Some("executor_dead"),
            Self::NoDatabase => Some("database_unavailable"),
            Self::Row(_) => Some("row_failed"),
            Self::RowRefused(_) => Some("row_refused"),
            Self::Invalid { .. }
            | Self::MediaType
            | Self::NotFound(_)
            | Self::MethodNotAllowed(_)
            | Self::BodyTimeout
            | Self::Internal => None,
        }
    }

    /// The field to blame, where there is one.
    fn param(&self) -> Option<String> {
        match self {
            Self::Invalid { field, .. } | Self::Constraints { field, .. } => Some(field.clone()),
            Self::TooLong { .. } => Some("max_tokens".into()),
            Self::ModelNotFound(_) => Some("model".into()),
            Self::KeyReused(header) => Some((*header).into()),
            Self::Busy { .. }
            | Self::NotConfigured(_)
            | Self::NeedsEngine(_)
            | Self::Unauthorized
            | Self::Malformed(_)
            | Self::TooLarge { .. }
            | Self::MediaType
            | Self::NotFound(_)
            | Self::MethodNotAllowed(_)
            | Self::BodyTimeout
            | Self::Overloaded { .. }
            | Self::Cancelled
            | Self::Deadline
            | Self::ShuttingDown
            | Self::Dead
            | Self::NoDatabase
            | Self::Row(_)
            | Self::RowRefused(_)
            | Self::Internal => None,
        }
    }

    /// The wire form.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorObject {
                message: self.to_string(),
                kind: self.kind().into(),
                param: self.param(),
                code: self.code().map(Into::into),
            },
        }
    }
}

/// How a route that runs the model can refuse, for the OpenAPI document.
#[derive(utoipa::IntoResponses)]
pub enum Refusals {
    /// A field has a value that cannot be served.
    #[response(status = 400)]
    Invalid(ErrorBody),
    /// No valid key.
    #[response(status = 401)]
    Unauthorized(ErrorBody),
    /// What a field names is not there.
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// Too much is asked already.
    #[response(status = 429)]
    Overloaded(ErrorBody),
    /// The deadline passed.
    #[response(status = 504)]
    Deadline(ErrorBody),
}

/// The OpenAI error envelope.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorObject,
}

/// The OpenAI error object; all four keys are always there.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorObject {
    /// For people.
    pub message: String,
    /// The class of error.
    #[serde(rename = "type")]
    pub kind: String,
    /// The field to blame.
    pub param: Option<String>,
    /// For programs.
    pub code: Option<String>,
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Invalid { .. } | Self::Malformed(_) | Self::TooLong { .. } | Self::RowRefused(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NotFound(_) | Self::ModelNotFound(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Overloaded { .. } | Self::Constraints { .. } | Self::Busy { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::NotConfigured(_) | Self::NeedsEngine(_) => StatusCode::NOT_IMPLEMENTED,
            Self::Cancelled | Self::KeyReused(_) => StatusCode::CONFLICT,
            Self::Deadline => StatusCode::GATEWAY_TIMEOUT,
            Self::ShuttingDown | Self::Dead | Self::NoDatabase => StatusCode::SERVICE_UNAVAILABLE,
            Self::Row(_) | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        match self {
            Self::Overloaded { retry_after, .. }
            | Self::Constraints { retry_after, .. }
            | Self::Busy { retry_after, .. } => {
                response.insert_header((RETRY_AFTER, retry_after.0.div_ceil(1000).max(1).to_string()));
            }
            Self::ShuttingDown => {
                response.insert_header((RETRY_AFTER, "5"));
            }
            Self::NoDatabase => {
                response.insert_header((RETRY_AFTER, "1"));
            }
            Self::MethodNotAllowed(methods) => {
                response.insert_header((ALLOW, *methods));
            }
            // The rest of such a body is not read: the connection cannot be used again.
            Self::TooLarge { .. } | Self::BodyTimeout => {
                response.force_close();
            }
            Self::Unauthorized
            | Self::NotConfigured(_)
            | Self::NeedsEngine(_)
            | Self::Invalid { .. }
            | Self::Malformed(_)
            | Self::TooLong { .. }
            | Self::MediaType
            | Self::NotFound(_)
            | Self::ModelNotFound(_)
            | Self::KeyReused(_)
            | Self::Cancelled
            | Self::Deadline
            | Self::Dead
            | Self::Row(_)
            | Self::RowRefused(_)
            | Self::Internal => {}
        }
        response.json(self.body())
    }
}

/// Logs a cause that is ours and hides it from the client.
pub fn internal(cause: impl std::fmt::Display) -> ApiError {
    tracing::error!(%cause, "internal error");
    ApiError::Internal
}

/// What a client is told of the store's failure.
pub fn of_store(error: store::Error) -> ApiError {
    if !error.is_transient() {
        return internal(error);
    }
    tracing::warn!(%error, "a request met no database");
    ApiError::NoDatabase
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_object_has_all_four_keys() {
        let body = serde_json::to_value(ApiError::invalid("top_p", "must be in (0, 1]").body());
        let error = body.expect("an error body is plain data")["error"].clone();
        assert_eq!(error["param"], "top_p");
        assert_eq!(error["code"], serde_json::Value::Null);
        assert_eq!(error.as_object().map(|object| object.len()), Some(4));
    }

    #[test]
    fn a_full_queue_says_when_to_come_back() {
        let error = ApiError::Overloaded { rows: 9, limit: 8, retry_after: Millis(1_200) };
        let response = error.error_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()), Some("2"));
    }
}
