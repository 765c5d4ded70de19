//! JSON shapes of `/v1/workbooks` and `/v1/shared`.

use base::Bytes;
use serde::Serialize;
use serde_json::Value;
use serving::error::{RequestError, internal};
use store::{Workbook, WorkbookShare, WorkbookVersion};
use utoipa::ToSchema;

use crate::config::WorkbooksConfig;
use crate::json::JsonFields;
use crate::wire::seconds;

/// Letters of a workbook's name.
const NAME_LETTERS_MAX: usize = 200;
/// Bytes of a workbook's identity.
const ID_BYTES_MAX: usize = 64;
/// Days that a link works where nothing is said.
const SHARE_DAYS: u64 = 30;
/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// A workbook to save, as it was sent.
#[derive(Debug)]
pub struct SaveRequest {
    pub name: String,
    /// A JSON object, as text.
    pub content: String,
    /// The version that it stands on; 0: it is new.
    pub base: u64,
    /// Whether the version stays as it is: the next save, however soon, is another.
    pub closes: bool,
}

/// Refuses what cannot be a workbook's identity: databases do not take every text.
pub fn check_id(id: &str) -> Result<(), RequestError> {
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if id.len() <= ID_BYTES_MAX && id.bytes().all(is_id) {
        return Ok(());
    }
    let reason = format!("must be at most {ID_BYTES_MAX} letters, digits, `-` and `_`");
    Err(RequestError::invalid("id", reason))
}

/// Reads `POST /v1/workbooks/{id}`.
pub fn save(mut fields: JsonFields) -> Result<SaveRequest, RequestError> {
    let name = name(&mut fields, NAME_LETTERS_MAX)?;
    let content = match fields.require("content")? {
        content @ Value::Object(_) => content.to_string(),
        _ => return fields.bad("content", "must be an object"),
    };
    let Some(base) = fields.integer("base", 0, u64::from(u32::MAX))? else {
        return fields.bad("base", "is required: the version that the save stands on, 0 of a new workbook");
    };
    let closes = fields.bool("close_version")?.unwrap_or(false);
    fields.finish()?;
    Ok(SaveRequest { name, content, base, closes })
}

/// Takes the field `name`, which people read.
pub fn name(fields: &mut JsonFields, letters_max: usize) -> Result<String, RequestError> {
    let Some(name) = fields.string("name")? else { return fields.bad("name", "is required") };
    let name = name.trim().to_owned();
    check_letters(&fields.name("name"), &name, letters_max)?;
    Ok(name)
}

/// Refuses a name that is empty, longer than so many letters, or on several lines.
pub(super) fn check_letters(field: &str, name: &str, letters_max: usize) -> Result<(), RequestError> {
    if name.is_empty() || name.chars().any(char::is_control) || name.chars().count() > letters_max {
        return Err(RequestError::invalid(field, format!("must be 1 to {letters_max} letters on one line")));
    }
    Ok(())
}

/// Reads `POST /v1/workbooks/{id}/shares`: the milliseconds that the link is to work.
pub fn share(mut fields: JsonFields, config: &WorkbooksConfig) -> Result<u64, RequestError> {
    let days_max = config.share_ms_max.0 / DAY_MS;
    let Some(days) = fields.integer("days", 1, u64::MAX)? else {
        fields.finish()?;
        return Ok((SHARE_DAYS * DAY_MS).min(config.share_ms_max.0));
    };
    if days > days_max {
        return fields.bad("days", format!("must be at most {days_max} (workbooks.share_ms_max)"));
    }
    fields.finish()?;
    Ok(days * DAY_MS)
}

/// A workbook.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkbookReply {
    id: String,
    /// `workbook`.
    object: &'static str,
    name: String,
    /// How often it was saved; a save stands on it.
    version: u64,
    /// Of the newest version.
    bytes: u64,
    /// Unix seconds.
    created: u64,
    /// When it was last saved, unix seconds.
    updated: u64,
}

impl From<Workbook> for WorkbookReply {
    fn from(workbook: Workbook) -> Self {
        Self {
            id: workbook.id,
            object: "workbook",
            name: workbook.name,
            version: workbook.version,
            bytes: workbook.bytes.0,
            created: seconds(workbook.created),
            updated: seconds(workbook.updated),
        }
    }
}

/// A tenant's workbooks.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkbooksReply {
    /// `list`.
    object: &'static str,
    data: Vec<WorkbookReply>,
    /// Of all versions of all of them.
    bytes: u64,
    /// The tenant's quota.
    bytes_max: u64,
}

impl WorkbooksReply {
    /// Workbooks, the bytes that all of their versions take, and how many may be taken.
    pub fn new(workbooks: Vec<Workbook>, bytes: Bytes, bytes_max: Bytes) -> Self {
        let data = workbooks.into_iter().map(WorkbookReply::from).collect();
        Self { object: "list", data, bytes: bytes.0, bytes_max: bytes_max.0 }
    }
}

/// A version of a workbook; where one is asked for, `content` stands behind these.
#[derive(Debug, Serialize, ToSchema)]
pub struct VersionReply {
    /// `workbook.version`.
    object: &'static str,
    version: u64,
    /// The workbook's name then.
    name: String,
    bytes: u64,
    /// Unix seconds.
    saved: u64,
}

impl From<WorkbookVersion> for VersionReply {
    fn from(version: WorkbookVersion) -> Self {
        Self {
            object: "workbook.version",
            version: version.version,
            name: version.name,
            bytes: version.bytes.0,
            saved: seconds(version.saved),
        }
    }
}

impl VersionReply {
    /// A version with its content, as JSON. The content is JSON already and goes out as it was kept: it may be
    /// large.
    pub fn with_content(version: WorkbookVersion, content: &str) -> Result<String, RequestError> {
        let mut json = serde_json::to_string(&Self::from(version)).map_err(internal)?;
        json.truncate(json.len() - 1);
        json.push_str(",\"content\":");
        json.push_str(content);
        json.push('}');
        Ok(json)
    }
}

/// A link that shows a workbook.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShareReply {
    id: u64,
    /// `workbook.share`.
    object: &'static str,
    /// What the link carries; told once, where it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The page's address with the token, behind this server's; told once.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Unix seconds.
    created: u64,
    /// When it stops working, unix seconds.
    expires: u64,
}

impl ShareReply {
    /// A link, with its token where it was made just now.
    pub fn new(share: WorkbookShare, token: Option<String>) -> Self {
        Self {
            id: share.id,
            object: "workbook.share",
            // Behind `#`, so that no server and no proxy ever sees it in an address.
            path: token.as_ref().map(|token| format!("/#shared={token}")),
            token,
            created: seconds(share.created),
            expires: seconds(share.expires),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<SaveRequest, String> {
        let fields = crate::json::object(body.to_string().as_bytes()).expect("an object");
        save(fields).map_err(|error| error.to_string())
    }

    #[test]
    fn a_save_names_its_base_and_has_an_object() {
        let saved = read(&json!({"name": " Sales ", "content": {"b": [1], "a": "\u{e9}"}, "base": 3}));
        let saved = saved.expect("good");
        assert_eq!((saved.name.as_str(), saved.base), ("Sales", 3));
        assert_eq!(saved.content, "{\"b\":[1],\"a\":\"\u{e9}\"}", "in the order in which it came");
        for (body, part) in [
            (json!({"content": {}, "base": 0}), "`name`: is required"),
            (json!({"name": "  ", "content": {}, "base": 0}), "`name`: must be 1 to 200"),
            (json!({"name": "a\nb", "content": {}, "base": 0}), "`name`: must be"),
            (json!({"name": "n".repeat(201), "content": {}, "base": 0}), "`name`: must be"),
            (json!({"name": "n", "content": [], "base": 0}), "`content`: must be an object"),
            (json!({"name": "n", "content": {}}), "`base`: is required"),
            (json!({"name": "n", "content": {}, "base": -1}), "`base`: must be an integer"),
            (json!({"name": "n", "content": {}, "base": 0, "more": 1}), "`more`"),
        ] {
            let error = read(&body).expect_err("refused");
            assert!(error.contains(part), "{body}: {error:?} lacks {part:?}");
        }
    }

    #[test]
    fn an_identity_is_letters_and_digits() {
        for (id, is_good) in [("a-B_9", true), ("", true), ("a/b", false), ("\u{e9}", false)] {
            assert_eq!(check_id(id).is_ok(), is_good, "{id:?}");
        }
        assert!(check_id(&"x".repeat(65)).is_err());
    }
}
