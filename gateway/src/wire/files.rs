//! Files on the wire, in OpenAI's shape.

use base::Millis;
use serde::Serialize;
use serving::error::RequestError;
use store::FileInfo;
use utoipa::ToSchema;

use crate::json::JsonFields;

/// For how long OpenAI's clients may ask a file to be kept.
pub const KEPT_SECONDS: std::ops::RangeInclusive<u64> = 3_600..=2_592_000;

/// Takes how long files are kept, from when they are made: at most `most`.
pub(super) fn expires_after(
    fields: &mut JsonFields,
    field: &str,
    most: Millis,
) -> Result<Option<Millis>, RequestError> {
    let Some(value) = fields.take(field) else { return Ok(None) };
    let mut inner = JsonFields::nested(field, value)?;
    if inner.string("anchor")?.as_deref() != Some("created_at") {
        return inner.bad("anchor", "must be `created_at`");
    }
    let most = (*KEPT_SECONDS.end()).min(most.0 / 1_000);
    let Some(seconds) = inner.integer("seconds", *KEPT_SECONDS.start(), most)? else {
        return inner.bad("seconds", "is required");
    };
    inner.finish()?;
    Ok(Some(Millis(seconds * 1_000)))
}

/// A file.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FileReply {
    /// Its id.
    pub id: String,
    /// Always `file`.
    pub object: &'static str,
    /// Its bytes.
    pub bytes: u64,
    /// When it was made, unix seconds.
    pub created_at: u64,
    /// When it is forgotten, unix seconds.
    pub expires_at: u64,
    /// Its name.
    pub filename: String,
    /// `batch`, `user_data` of a table of SQL, or `batch_output` of what a batch left.
    pub purpose: String,
    /// Always `processed`: it can be used at once.
    pub status: &'static str,
}

impl FileReply {
    /// A file of the store.
    pub fn new(file: &FileInfo) -> Self {
        Self {
            id: file.id.clone(),
            object: "file",
            bytes: file.bytes.0,
            created_at: file.created.0 / 1_000,
            expires_at: file.expires.0 / 1_000,
            filename: file.name.clone(),
            purpose: file.purpose.clone(),
            status: "processed",
        }
    }
}

/// A part of a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct List<T: ToSchema> {
    /// Always `list`.
    pub object: &'static str,
    /// What is on it.
    pub data: Vec<T>,
    /// The id of the first.
    pub first_id: Option<String>,
    /// The id of the last: `after` of the next part.
    pub last_id: Option<String>,
    /// Whether there is a next part.
    pub has_more: bool,
}

impl<T: ToSchema> List<T> {
    /// The first `limit` of what was found, which is one more where there are more.
    pub fn new(mut data: Vec<T>, limit: u32, id: impl Fn(&T) -> &String) -> Self {
        let has_more = data.len() > limit as usize;
        data.truncate(limit as usize);
        let (first_id, last_id) =
            (data.first().map(|one| id(one).clone()), data.last().map(|one| id(one).clone()));
        Self { object: "list", data, first_id, last_id, has_more }
    }
}
