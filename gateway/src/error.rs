//! The one mapping from errors to status codes and the OpenAI error object
//! `{"error":{"message","type","param","code"}}`.

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, RETRY_AFTER};
use actix_web::{HttpResponse, ResponseError};
use base::Millis;
use serde::Serialize;
use serde_json::json;
use serving::RequestError;
use serving::gateway_ids::LOOP_CODE;
use serving::relquery_state::Usage;
use store::StoreOutage;
use utoipa::ToSchema;

use crate::wire::usage::UsageReply;

/// Why a call is refused: what HTTP itself can get wrong, and what the request can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// No key, or one that is not (any more) valid.
    #[error(
        "unknown or revoked API key; send it as `Authorization: Bearer rs-...` or as `x-api-key: rs-...`"
    )]
    Unauthorized,
    /// A key that was good until it expired.
    #[error("this API key has expired; ask an operator for another")]
    KeyExpired,
    /// The operators' key of the configuration, where a tenant is asked for.
    #[error(
        "`auth.admin_key` is the operators' key and no tenant's: send a tenant's key, such as one by `relserve key \
         create NAME`"
    )]
    TenantKeyRequired,
    /// A good key, but not an operator's.
    #[error(
        "this takes an operator's key: `auth.admin_key`, or one by `relserve key create NAME --operator`"
    )]
    Forbidden,
    /// A link's token was used, is past its date, or never was.
    #[error("{0}")]
    InvalidToken(&'static str),
    /// Something was saved since the version that a save stands on.
    #[error("{0}")]
    StaleVersion(String),
    /// The body has a content type that is not served.
    #[error("unsupported content type; send application/json")]
    MediaType,
    /// Without keys: the request names a host that is not known to be this one.
    #[error(
        "the host `{0}` is not known here: a server without keys is asked by address, or by a name in `server.hosts`"
    )]
    UnknownHost(String),
    /// Without keys: a page of another origin has sent it.
    #[error("pages of {0} may not ask a server without keys, unless `server.cors_origins` has them")]
    ForeignOrigin(String),
    /// The path exists, but not with this method.
    #[error("method not allowed here; allowed: {0}")]
    MethodNotAllowed(&'static str),
    /// This gateway has sent the request itself: it is its own replica, or others lead back to it.
    #[error("{0}")]
    LoopDetected(String),
    /// The body took too long to arrive.
    #[error("the request body did not arrive in time")]
    BodyTimeout,
    /// The deadline passed before the body had arrived.
    #[error("the deadline passed before the request had arrived")]
    Late,
    /// The request.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl ApiError {
    /// A field with a bad value.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        RequestError::invalid(field, reason).into()
    }

    /// The wire form.
    pub fn body(&self) -> ErrorBody {
        let (kind, code) = match self {
            Self::Unauthorized => ("authentication_error", Some("invalid_api_key")),
            Self::KeyExpired => ("authentication_error", Some("api_key_expired")),
            Self::TenantKeyRequired => ("authentication_error", Some("tenant_key_required")),
            Self::Forbidden => ("permission_error", Some("operator_key_required")),
            Self::InvalidToken(_) => ("authentication_error", Some("invalid_link")),
            Self::StaleVersion(_) => ("invalid_request_error", Some("stale_version")),
            Self::UnknownHost(_) => ("permission_error", Some("unknown_host")),
            Self::ForeignOrigin(_) => ("permission_error", Some("foreign_origin")),
            Self::LoopDetected(_) => ("invalid_request_error", Some(LOOP_CODE)),
            Self::MediaType | Self::MethodNotAllowed(_) | Self::BodyTimeout => {
                ("invalid_request_error", None)
            }
            Self::Late => return body(&RequestError::Deadline),
            Self::Request(error) => return body(error),
        };
        let code = code.map(Into::into);
        ErrorBody { error: ErrorObject { message: self.to_string(), kind: kind.into(), param: None, code } }
    }
}

/// The wire form of a request's error, or a row's.
pub fn body(error: &RequestError) -> ErrorBody {
    ErrorBody {
        error: ErrorObject {
            message: error.to_string(),
            kind: error.kind().into(),
            param: error.param(),
            code: error.code().map(Into::into),
        },
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
            Self::Unauthorized | Self::KeyExpired | Self::TenantKeyRequired | Self::InvalidToken(_) => {
                StatusCode::UNAUTHORIZED
            }
            Self::Forbidden | Self::UnknownHost(_) | Self::ForeignOrigin(_) => StatusCode::FORBIDDEN,
            Self::StaleVersion(_) => StatusCode::CONFLICT,
            Self::LoopDetected(_) => StatusCode::LOOP_DETECTED,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Late => status(&RequestError::Deadline),
            Self::Request(error) => status(error),
        }
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        match self {
            Self::MethodNotAllowed(methods) => {
                response.insert_header((ALLOW, *methods));
            }
            // The rest of such a body is not read: the connection cannot be used again.
            Self::BodyTimeout | Self::Late | Self::Request(RequestError::TooLarge { .. }) => {
                response.force_close();
            }
            Self::Request(error) => {
                // The body may not have been read to its end.
                if matches!(error, RequestError::Busy { .. }) {
                    response.force_close();
                }
                if let Some(Millis(ms)) = retry_after(error) {
                    response.insert_header((RETRY_AFTER, ms.div_ceil(1000).max(1).to_string()));
                }
            }
            Self::Unauthorized
            | Self::KeyExpired
            | Self::TenantKeyRequired
            | Self::Forbidden
            | Self::UnknownHost(_)
            | Self::ForeignOrigin(_)
            | Self::InvalidToken(_)
            | Self::StaleVersion(_)
            | Self::LoopDetected(_)
            | Self::MediaType => {}
        }
        match self {
            Self::Late => response.json(too_late(Usage::default())),
            _ => response.json(self.body()),
        }
    }
}

/// The error of a deadline, with the tokens that were spent until then.
pub fn too_late(spent: Usage) -> serde_json::Value {
    let mut body = json!(body(&RequestError::Deadline));
    body["usage"] = json!(UsageReply::from(spent));
    body
}

/// The status code of a request's error.
pub fn status(error: &RequestError) -> StatusCode {
    match error {
        RequestError::Invalid { .. }
        | RequestError::Malformed(_)
        | RequestError::TooLong { .. }
        | RequestError::RowRefused(_) => StatusCode::BAD_REQUEST,
        RequestError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        RequestError::NotFound(_)
        | RequestError::ResponseNotFound(_)
        | RequestError::ModelNotFound { .. } => StatusCode::NOT_FOUND,
        RequestError::Overloaded { .. }
        | RequestError::BudgetSpent { .. }
        | RequestError::TenantBudget { .. }
        | RequestError::StatementBudget { .. }
        | RequestError::RateLimit { .. }
        | RequestError::Constraints { .. }
        | RequestError::Busy { .. }
        | RequestError::TicketsFull { .. } => StatusCode::TOO_MANY_REQUESTS,
        RequestError::OutOfScope(_) => StatusCode::FORBIDDEN,
        RequestError::NotConfigured(_) => StatusCode::NOT_IMPLEMENTED,
        RequestError::KeyReused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        RequestError::Cancelled | RequestError::KeyInUse(_) => StatusCode::CONFLICT,
        RequestError::Deadline => StatusCode::GATEWAY_TIMEOUT,
        RequestError::ShuttingDown
        | RequestError::Dead
        | RequestError::NoDatabase(_)
        | RequestError::NoReplica => StatusCode::SERVICE_UNAVAILABLE,
        RequestError::Row(_)
        | RequestError::ServerEnded { .. }
        | RequestError::AnswerChanged
        | RequestError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// When a retry has a chance, where that can be said.
fn retry_after(error: &RequestError) -> Option<Millis> {
    match error {
        RequestError::Overloaded { retry_after, .. }
        | RequestError::BudgetSpent { retry_after, .. }
        | RequestError::TenantBudget { retry_after, .. }
        | RequestError::RateLimit { retry_after, .. }
        | RequestError::Constraints { retry_after, .. }
        | RequestError::Busy { retry_after, .. }
        | RequestError::TicketsFull { retry_after, .. } => Some(*retry_after),
        RequestError::StatementBudget { retry_after, .. } => *retry_after,
        RequestError::ShuttingDown => Some(Millis(5_000)),
        // Room is made by people, and a file is put back by them.
        RequestError::NoDatabase(StoreOutage::DiskFull | StoreOutage::FileGone) => Some(Millis(30_000)),
        RequestError::NoDatabase(_) | RequestError::NoReplica | RequestError::KeyInUse(_) => {
            Some(Millis(1_000))
        }
        RequestError::Invalid { .. }
        | RequestError::OutOfScope(_)
        | RequestError::Malformed(_)
        | RequestError::TooLong { .. }
        | RequestError::TooLarge { .. }
        | RequestError::NotFound(_)
        | RequestError::ResponseNotFound(_)
        | RequestError::ModelNotFound { .. }
        | RequestError::KeyReused(_)
        | RequestError::NotConfigured(_)
        | RequestError::Cancelled
        | RequestError::Deadline
        | RequestError::Dead
        | RequestError::Row(_)
        | RequestError::RowRefused(_)
        | RequestError::ServerEnded { .. }
        | RequestError::AnswerChanged
        | RequestError::Internal => None,
    }
}

#[cfg(test)]
mod tests {
    use serving::queue_room::QueueBound;

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
        let error = RequestError::Overloaded {
            bound: QueueBound::Whole,
            rows: 9,
            limit: 8,
            retry_after: Millis(1_200),
        };
        let response = ApiError::from(error).error_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()), Some("2"));
    }

    #[test]
    fn a_file_that_is_gone_is_named_and_says_when_to_come_back() {
        let error = ApiError::from(RequestError::NoDatabase(StoreOutage::FileGone));
        let body = error.body().error;
        assert_eq!(body.code.as_deref(), Some("database_unavailable"));
        assert!(body.message.starts_with("the file of the server's database is gone"), "{}", body.message);
        let response = error.error_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()), Some("30"));
    }

    #[test]
    fn a_full_disk_is_named_and_says_when_to_come_back() {
        let error = ApiError::from(RequestError::NoDatabase(StoreOutage::DiskFull));
        let body = error.body().error;
        assert_eq!(body.code.as_deref(), Some("disk_full"));
        let told =
            "the disk of the server's database is full, or of temporary files; try again when it has room";
        assert_eq!(body.message, told);
        let response = error.error_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()), Some("30"));
    }
}
