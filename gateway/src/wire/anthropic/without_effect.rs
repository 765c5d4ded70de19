//! Settings of Anthropic's that have no effect here: how long a model thinks, and what is forgotten of a conversation.
//!
//! Models here are not told to think, and of a conversation what was thought alone is left out. Clients set both for
//! every server: their requests are answered all the same, unless `openai.unknown_fields` has them refused.

use serde_json::Value;
use serving::error::RequestError;

use crate::json::JsonFields;
use crate::wire::openai::LeftOut;

/// Fewest tokens that a model may be told to think for, as Anthropic has it.
const BUDGET_MIN: u64 = 1_024;

/// Takes `thinking`.
pub(super) fn take_thinking(fields: &mut JsonFields, left: &mut LeftOut) -> Result<(), RequestError> {
    const FIELD: &str = "thinking";
    let Some(value) = fields.take(FIELD) else { return Ok(()) };
    let mut thinking = JsonFields::nested(FIELD, value)?;
    // How much of what is thought is shown.
    thinking.take("display");
    match thinking.string("type")?.as_deref() {
        // Who lets a model decide has one that does not think.
        Some("disabled" | "adaptive") => {}
        Some("enabled") => {
            let reason = "must be of type disabled or adaptive: models here are not told to think";
            left.without_effect(FIELD, reason)?;
            take_budget(&mut thinking, fields)?;
        }
        Some(_) => return thinking.bad("type", "must be enabled, disabled or adaptive"),
        None => return thinking.bad("type", "is required"),
    }
    left.finish(thinking)
}

/// Takes `budget_tokens`, which Anthropic has below the output limit of the request; with tools it is for the thoughts of
/// several answers, and may be more.
fn take_budget(thinking: &mut JsonFields, request: &JsonFields) -> Result<(), RequestError> {
    const FIELD: &str = "budget_tokens";
    let Some(budget) = thinking.require(FIELD)?.as_u64().filter(|budget| *budget >= BUDGET_MIN) else {
        return thinking.bad(FIELD, format!("must be an integer of at least {BUDGET_MIN}"));
    };
    let has_tools = request.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty());
    // The limit as it was sent: that the operator's is less is no fault of the request.
    match request.count("max_tokens") {
        Some(limit) if budget >= limit && !has_tools => {
            thinking.bad(FIELD, "must be less than `max_tokens`, unless there are tools")
        }
        Some(_) | None => Ok(()),
    }
}

/// Takes `context_management`.
pub(super) fn take_context_management(
    fields: &mut JsonFields,
    left: &mut LeftOut,
) -> Result<(), RequestError> {
    const FIELD: &str = "context_management";
    let Some(value) = fields.take(FIELD) else { return Ok(()) };
    let mut management = JsonFields::nested(FIELD, value)?;
    let edits = management.array("edits")?.unwrap_or_default();
    let kinds: Option<Vec<&str>> = edits.iter().map(|edit| edit["type"].as_str()).collect();
    let Some(kinds) = kinds else { return management.bad("edits", "must hold objects with a `type`") };
    if !kinds.iter().all(|kind| kind.starts_with("clear_thinking_")) {
        let reason = "may only clear what models thought, which is left out: what does not fit is refused";
        left.without_effect(FIELD, reason)?;
    }
    left.finish(management)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UnknownFields;
    use crate::json;

    /// The names of what has no effect, or the field to blame.
    fn read(unknown: UnknownFields, body: &str) -> Result<Vec<String>, String> {
        let mut fields = json::object(body.as_bytes()).expect("an object");
        let mut left = LeftOut::new(unknown);
        let taken = take_thinking(&mut fields, &mut left);
        match taken.and_then(|()| take_context_management(&mut fields, &mut left)) {
            Ok(()) => Ok(left.names),
            Err(RequestError::Invalid { field, .. }) => Err(field),
            Err(other) => panic!("{body} gave {other:?}"),
        }
    }

    #[test]
    fn what_has_no_effect_is_named_or_refused() {
        let named = |field: &str| Ok(vec![field.to_owned()]);
        for (body, field) in [
            (r#"{"max_tokens":2048,"thinking":{"type":"enabled","budget_tokens":1024}}"#, "thinking"),
            // More than the operator allows, and below the limit that was sent.
            (r#"{"max_tokens":32000,"thinking":{"type":"enabled","budget_tokens":31999}}"#, "thinking"),
            // To count tokens there need be no limit.
            (r#"{"thinking":{"type":"enabled","budget_tokens":1024,"display":"omitted"}}"#, "thinking"),
            (
                r#"{"max_tokens":9,"tools":[{"name":"f"}],"thinking":{"type":"enabled","budget_tokens":1024}}"#,
                "thinking",
            ),
            (
                r#"{"context_management":{"edits":[{"type":"clear_thinking_20251015"},{"type":"compact_20260112"}]}}"#,
                "context_management",
            ),
        ] {
            assert_eq!(read(UnknownFields::Warn, body), named(field), "{body}");
            assert_eq!(read(UnknownFields::Ignore, body), Ok(Vec::new()), "{body}");
            assert_eq!(read(UnknownFields::Refuse, body), Err(field.to_owned()), "{body}");
        }
    }

    #[test]
    fn what_asks_for_nothing_is_taken() {
        for body in [
            "{}",
            r#"{"thinking":{"type":"disabled"},"context_management":{}}"#,
            r#"{"thinking":{"type":"adaptive","display":"summarized"},"context_management":null}"#,
            r#"{"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}}"#,
        ] {
            assert_eq!(read(UnknownFields::Refuse, body), Ok(Vec::new()), "{body}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused_by_name_whatever_has_no_effect() {
        for (body, blamed) in [
            (r#"{"thinking":"enabled"}"#, "thinking"),
            (r#"{"thinking":{"budget_tokens":1024}}"#, "thinking.type"),
            (r#"{"thinking":{"type":"hard"}}"#, "thinking.type"),
            (r#"{"thinking":{"type":"enabled"}}"#, "thinking.budget_tokens"),
            (r#"{"thinking":{"type":"enabled","budget_tokens":1023}}"#, "thinking.budget_tokens"),
            (r#"{"thinking":{"type":"enabled","budget_tokens":"2048"}}"#, "thinking.budget_tokens"),
            (
                r#"{"max_tokens":1024,"tools":[],"thinking":{"type":"enabled","budget_tokens":1024}}"#,
                "thinking.budget_tokens",
            ),
            (r#"{"context_management":"none"}"#, "context_management"),
            (r#"{"context_management":{"edits":{}}}"#, "context_management.edits"),
            (r#"{"context_management":{"edits":["all"]}}"#, "context_management.edits"),
        ] {
            for unknown in [UnknownFields::Warn, UnknownFields::Ignore] {
                assert_eq!(read(unknown, body), Err(blamed.to_owned()), "{body}");
            }
        }
    }
}
