//! The shapes of Anthropic's `/v1/messages`: read as the chat that they stand for, told in blocks.

mod message_events;
mod message_reply;
mod message_request;
mod without_effect;

pub use message_events::MessageEvents;
pub use message_reply::{AnthropicMessage, MessageEnvelope};
pub use message_request::chat_of;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, ResponseError};
use serde::Serialize;
use serde_json::{Value, json};
use serving::error::RequestError;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorObject};

/// An error as Anthropic tells it.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct MessageError(#[from] pub ApiError);

impl From<RequestError> for MessageError {
    fn from(error: RequestError) -> Self {
        Self(error.into())
    }
}

/// Its body.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MessageErrorBody {
    /// Always `error`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// `type`, the class of error, and `message`, which is for people; where there are any, `code` and `param` of other errors.
    #[schema(value_type = Object)]
    error: Value,
}

impl MessageError {
    /// The wire form.
    pub fn body(&self) -> MessageErrorBody {
        let mut error = json!({"type": class(self.0.status_code()), "message": self.message()});
        // Beyond Anthropic: what programs tell apart.
        let ErrorObject { code, param, .. } = self.0.body().error;
        for (name, value) in [("code", code), ("param", param)] {
            if let Some(value) = value {
                error[name] = value.into();
            }
        }
        MessageErrorBody { kind: "error", error }
    }

    /// What is wrong; of a prompt that does not fit first in Anthropic's words, by which agents know when to shorten it.
    fn message(&self) -> String {
        let ApiError::Request(RequestError::TooLong { prompt, output, limit, .. }) = &self.0 else {
            return self.0.to_string();
        };
        let most = limit.saturating_sub(*output);
        format!("prompt is too long: {prompt} tokens > {most} maximum. {}", self.0)
    }
}

impl ResponseError for MessageError {
    fn status_code(&self) -> StatusCode {
        self.0.status_code()
    }

    /// The same head as of any error, with another body.
    fn error_response(&self) -> HttpResponse {
        let body = serde_json::to_string(&self.body()).unwrap_or_default();
        self.0.error_response().set_body(body).map_into_boxed_body()
    }
}

/// The class of error that a status is, in Anthropic's words.
fn class(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => "timeout_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_class_its_status_and_what_is_wrong() {
        for (error, class, status) in [
            (ApiError::invalid("max_tokens", "is required"), "invalid_request_error", 400),
            (ApiError::Unauthorized, "authentication_error", 401),
            (RequestError::NotFound("x".into()).into(), "not_found_error", 404),
            (RequestError::Deadline.into(), "timeout_error", 504),
            (RequestError::ShuttingDown.into(), "overloaded_error", 503),
            (RequestError::Internal.into(), "api_error", 500),
        ] {
            let message = error.to_string();
            let error = MessageError(error);
            let body = json!(error.body());
            assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(class)));
            assert_eq!((&body["error"]["message"], error.status_code().as_u16()), (&json!(message), status));
        }
    }

    #[test]
    fn a_prompt_that_does_not_fit_is_told_in_anthropics_words_too() {
        let error = RequestError::TooLong { prompt: 2_040, output: 1, what: "context", limit: 2_030 };
        let body = json!(MessageError::from(error).body());
        let message = body["error"]["message"].as_str().expect("a text");
        assert!(message.starts_with("prompt is too long: 2040 tokens > 2029 maximum. "), "{message}");
        assert!(message.contains("This model's maximum context length is 2030 tokens"), "{message}");
        assert_eq!(body["error"]["code"], "context_length_exceeded");
    }
}
