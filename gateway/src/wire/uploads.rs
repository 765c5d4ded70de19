//! Uploads in parts on the wire, in OpenAI's shape.

use std::collections::HashSet;

use base::{Bytes, Millis};
use serde::Serialize;
use serde_json::Value;
use serving::error::RequestError;
use store::{FileInfo, PartedUpload};
use utoipa::ToSchema;

use crate::config::BulkConfig;
use crate::json::JsonFields;
use crate::wire::files::{FileReply, expires_after};

/// Characters of a file's name, as `/v1/files` keeps them.
const NAME_CHARS_MAX: usize = 255;
/// Hexadecimal digits of an MD5.
const MD5_DIGITS: usize = 32;

/// A body of `POST /v1/uploads`: what file is to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadRequest {
    pub filename: String,
    pub purpose: String,
    /// Of the whole file.
    pub bytes: Bytes,
    /// For how long it is kept, where the request says.
    pub kept: Option<Millis>,
}

/// A body of `POST /v1/uploads/{id}/complete`: how parts are put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadCompletion {
    /// In their order.
    pub part_ids: Vec<String>,
    /// Of the whole file, in lower case.
    pub md5: Option<String>,
}

/// Reads a body of `POST /v1/uploads`.
pub fn request(mut fields: JsonFields, bulk: &BulkConfig) -> Result<UploadRequest, RequestError> {
    let Some(filename) = fields.string("filename")? else { return fields.bad("filename", "is required") };
    let characters = filename.chars().count();
    if !(1..=NAME_CHARS_MAX).contains(&characters) || filename.chars().any(char::is_control) {
        let reason = format!("must have 1 to {NAME_CHARS_MAX} characters, and no control characters");
        return fields.bad("filename", reason);
    }
    let Some(purpose) = fields.string("purpose")? else { return fields.bad("purpose", "is required") };
    let Some(bytes) = fields.integer("bytes", 1, i64::MAX as u64)? else {
        return fields.bad("bytes", "is required");
    };
    if bytes > bulk.file_bytes_max.0 {
        let limit = format!("{} (bulk.file_bytes_max)", bulk.file_bytes_max.0);
        return Err(RequestError::TooLarge { what: "`bytes`".into(), limit });
    }
    // What a file is, its name says.
    if fields.string("mime_type")?.is_none() {
        return fields.bad("mime_type", "is required");
    }
    let kept = expires_after(&mut fields, "expires_after", bulk.keep_ms_max)?;
    fields.finish()?;
    Ok(UploadRequest { filename, purpose, bytes: Bytes(bytes), kept })
}

/// Reads a body of `POST /v1/uploads/{id}/complete`.
pub fn completion(mut fields: JsonFields) -> Result<UploadCompletion, RequestError> {
    let Some(items) = fields.array("part_ids")? else { return fields.bad("part_ids", "is required") };
    let part_ids: Option<Vec<String>> =
        items.iter().map(Value::as_str).map(|id| id.map(str::to_owned)).collect();
    let Some(part_ids) = part_ids.filter(|ids| !ids.is_empty()) else {
        return fields.bad("part_ids", "must be an array of parts' ids");
    };
    if let Some(place) = first_repeated(&part_ids) {
        return fields.bad(&format!("part_ids[{place}]"), "is there twice");
    }
    let md5 = fields.string("md5")?.map(|md5| md5.to_ascii_lowercase());
    let is_md5 = |md5: &String| md5.len() == MD5_DIGITS && md5.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !md5.as_ref().is_none_or(is_md5) {
        return fields.bad("md5", format!("must have {MD5_DIGITS} hexadecimal digits"));
    }
    fields.finish()?;
    Ok(UploadCompletion { part_ids, md5 })
}

/// The place of the first that was there before.
fn first_repeated(ids: &[String]) -> Option<usize> {
    let mut seen = HashSet::new();
    ids.iter().position(|id| !seen.insert(id))
}

/// An upload.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct UploadReply {
    /// `upload_...`.
    pub id: String,
    /// Always `upload`.
    pub object: &'static str,
    /// Of the whole file.
    pub bytes: u64,
    /// When it was made, unix seconds.
    pub created_at: u64,
    /// The file's name.
    pub filename: String,
    /// What the file is for.
    pub purpose: String,
    /// `pending`, `completed` or `cancelled`.
    pub status: &'static str,
    /// When it is forgotten, unix seconds. The file is not.
    pub expires_at: u64,
    /// The file, once there is one.
    pub file: Option<FileReply>,
}

impl UploadReply {
    /// An upload of the store, with the file that it became.
    pub fn new(upload: &PartedUpload, file: Option<&FileInfo>) -> Self {
        Self {
            id: upload.id.clone(),
            object: "upload",
            bytes: upload.bytes.0,
            created_at: upload.created.0 / 1_000,
            filename: upload.name.clone(),
            purpose: upload.purpose.clone(),
            status: upload.state.name(),
            expires_at: upload.expires.0 / 1_000,
            file: file.map(FileReply::new),
        }
    }
}

/// A part of an upload.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct UploadPartReply {
    /// `part_...`.
    pub id: String,
    /// Always `upload.part`.
    pub object: &'static str,
    /// When it was made, unix seconds.
    pub created_at: u64,
    /// The upload that it is of.
    pub upload_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn what_is_wrong_with_an_upload_is_named() {
        let good = r#"{"filename":"a.jsonl","purpose":"batch","bytes":5,"mime_type":"text/jsonl"}"#;
        let read = |body: &str| request(json::object(body.as_bytes())?, &BulkConfig::default());
        let found = read(good).expect("valid");
        assert_eq!((found.bytes, found.kept), (Bytes(5), None));
        for (from, to, blamed) in [
            ("\"a.jsonl\"", "\"\"", "`filename`"),
            ("\"a.jsonl\"", "\"a\\nb\"", "`filename`"),
            ("\"batch\"", "1", "`purpose`"),
            (":5", ":0", "`bytes`"),
            (":5", ":209715201", "bulk.file_bytes_max"),
            (",\"mime_type\":\"text/jsonl\"", "", "`mime_type`"),
            (":5", ":5,\"x\":1", "`x`"),
            (
                ":5",
                ":5,\"expires_after\":{\"anchor\":\"created_at\",\"seconds\":1}",
                "`expires_after.seconds`",
            ),
        ] {
            let error = read(&good.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(blamed), "{to}: {error}");
        }
        let kept = good.replace(":5", ":5,\"expires_after\":{\"anchor\":\"created_at\",\"seconds\":3600}");
        assert_eq!(read(&kept).expect("valid").kept, Some(Millis(3_600_000)));
    }

    #[test]
    fn what_is_wrong_with_its_completion_is_named() {
        let read = |body: &str| completion(json::object(body.as_bytes())?);
        let md5 = "D41D8CD98F00B204E9800998ECF8427E";
        let found = read(&format!("{{\"part_ids\":[\"p\",\"q\"],\"md5\":\"{md5}\"}}")).expect("valid");
        assert_eq!(found.part_ids, ["p", "q"]);
        assert_eq!(found.md5, Some(md5.to_ascii_lowercase()));
        for (body, blamed) in [
            ("{}", "`part_ids`"),
            (r#"{"part_ids":[]}"#, "`part_ids`"),
            (r#"{"part_ids":[1]}"#, "`part_ids`"),
            (r#"{"part_ids":["p","q","p"]}"#, "`part_ids[2]`"),
            (r#"{"part_ids":["p"],"md5":"0"}"#, "`md5`"),
            (r#"{"part_ids":["p"],"x":1}"#, "`x`"),
        ] {
            let error = read(body).expect_err(body).to_string();
            assert!(error.contains(blamed), "{body}: {error}");
        }
    }
}
