//! JSON shapes of keys: what is asked for, and what is told of them.

use base::Millis;
use serde::Serialize;
use serde_json::Value;
use serving::error::RequestError;
use store::{CreatedKey, KeyInfo, KeyScope, UnixMillis};
use utoipa::ToSchema;

use crate::auth::scope::{ROUTES, SQL};
use crate::json::JsonFields;
use crate::services::sql::accounts::user_of;
use crate::wire::admin::{plain_name, required};
use crate::wire::seconds;

/// Longest life of a key, in days.
const DAYS_MAX: u64 = 36_500;
const DAY_MS: u64 = 86_400_000;
/// Most tables that a key may be limited to.
const TABLES_MAX: usize = 1_000;
/// For how long a rotated key goes on, where nothing is said.
const OVERLAP: Millis = Millis(DAY_MS);

/// When a key stops working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyExpiry {
    Never,
    /// So long after it is made.
    After(Millis),
    At(UnixMillis),
}

impl KeyExpiry {
    /// As the store has it.
    ///
    /// # Errors
    /// An instant that is not later than now: the key would never work.
    pub fn from(self, now: UnixMillis) -> Result<Option<UnixMillis>, RequestError> {
        match self {
            Self::Never => Ok(None),
            Self::After(span) => Ok(Some(now.after(span))),
            Self::At(instant) if instant > now => Ok(Some(instant)),
            Self::At(_) => {
                let reason = format!("must be later than now, which is {} (unix seconds)", seconds(now));
                Err(RequestError::invalid("expires", reason))
            }
        }
    }
}

/// A key to make, as it was asked for.
#[derive(Debug)]
pub struct KeyRequest {
    pub name: String,
    /// The tenant's name.
    pub tenant: String,
    pub expiry: KeyExpiry,
    pub is_operator: bool,
    pub scope: KeyScope,
}

/// Reads `POST /v1/keys`.
pub fn key(mut fields: JsonFields) -> Result<KeyRequest, RequestError> {
    let asked = KeyRequest {
        name: plain_name(&mut fields)?,
        tenant: required(&mut fields, "tenant")?,
        expiry: expiry(&mut fields)?,
        is_operator: fields.bool("operator")?.unwrap_or(false),
        scope: scope(&mut fields)?,
    };
    fields.finish()?;
    Ok(asked)
}

fn expiry(fields: &mut JsonFields) -> Result<KeyExpiry, RequestError> {
    let days = fields.integer("days", 1, DAYS_MAX)?;
    // Seconds whose milliseconds the store holds.
    let expires = fields.integer("expires", 1, i64::MAX as u64 / 1_000)?;
    match (days, expires) {
        (None, None) => Ok(KeyExpiry::Never),
        (Some(days), None) => Ok(KeyExpiry::After(Millis(days * DAY_MS))),
        (None, Some(seconds)) => Ok(KeyExpiry::At(UnixMillis(seconds * 1_000))),
        (Some(_), Some(_)) => fields.bad("expires", "is said by `days` already"),
    }
}

fn scope(fields: &mut JsonFields) -> Result<KeyScope, RequestError> {
    let is_read_only = fields.bool("read_only")?.unwrap_or(false);
    let routes = fields.array("routes")?.map(|routes| strings("routes", routes)).transpose()?;
    let tables = fields.array("tables")?.map(|tables| strings("tables", tables)).transpose()?;
    scope_of(is_read_only, routes, tables)
}

/// A scope of routes and tables, where there are such. A key that is limited to tables alone has the routes of SQL:
/// others show the tenant's data by other names.
///
/// # Errors
/// A group of routes that is none, or too many tables.
pub fn scope_of(
    is_read_only: bool,
    routes: Option<Vec<String>>,
    tables: Option<Vec<String>>,
) -> Result<KeyScope, RequestError> {
    let is_unknown = |route: &&String| !ROUTES.contains(&route.as_str());
    if let Some(unknown) = routes.iter().flatten().find(is_unknown) {
        let groups = ROUTES.join(", ");
        return Err(RequestError::invalid("routes", format!("has `{unknown}`, and there are {groups}")));
    }
    if tables.as_ref().is_some_and(|tables| tables.len() > TABLES_MAX) {
        return Err(RequestError::invalid("tables", format!("are more than {TABLES_MAX}")));
    }
    let routes = routes.or_else(|| tables.is_some().then(|| vec![SQL.to_owned()]));
    Ok(KeyScope { is_read_only, routes, tables })
}

fn strings(field: &str, values: Vec<Value>) -> Result<Vec<String>, RequestError> {
    let text = |(place, value)| match value {
        Value::String(text) => Ok(text),
        _ => Err(RequestError::invalid(format!("{field}[{place}]"), "must be a name")),
    };
    values.into_iter().enumerate().map(text).collect()
}

/// Reads `POST /v1/keys/{id}/rotate`: for how long the old key goes on.
pub fn overlap(mut fields: JsonFields) -> Result<Millis, RequestError> {
    let overlap = fields.integer("overlap_ms", 0, DAYS_MAX * DAY_MS)?;
    fields.finish()?;
    Ok(overlap.map_or(OVERLAP, Millis))
}

/// A key, without its text.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeyReply {
    id: u64,
    /// `key`.
    object: &'static str,
    name: String,
    /// The tenant's name.
    tenant: String,
    /// Its first characters.
    shown: String,
    /// Whether it is an operator's.
    operator: bool,
    /// Whether it only looks.
    read_only: bool,
    /// The groups of routes that it may use; none: all.
    routes: Option<Vec<String>>,
    /// The tables that its SQL may read; none: all.
    tables: Option<Vec<String>>,
    /// The user of SQL logins, to whom the key is the password.
    sql_user: String,
    /// Unix seconds.
    created: u64,
    /// To the minute, unix seconds.
    last_used: Option<u64>,
    /// When it stops working, unix seconds.
    expires: Option<u64>,
    /// When it was revoked, unix seconds.
    revoked: Option<u64>,
    /// The key that it came in place of.
    rotated_from: Option<u64>,
    /// The key itself; told once, where it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl KeyReply {
    /// A key of a tenant of this name.
    pub fn new(key: KeyInfo, tenant: &str) -> Self {
        Self {
            id: key.id,
            object: "key",
            name: key.name,
            tenant: tenant.to_owned(),
            shown: key.shown,
            operator: key.is_operator,
            read_only: key.scope.is_read_only,
            routes: key.scope.routes,
            tables: key.scope.tables,
            sql_user: user_of(tenant, key.id),
            created: seconds(key.created),
            last_used: key.last_used.map(seconds),
            expires: key.expires.map(seconds),
            revoked: key.revoked.map(seconds),
            rotated_from: key.rotated_from,
            key: None,
        }
    }

    /// A key that was made just now, with its text.
    pub fn created(created: CreatedKey, tenant: &str) -> Self {
        Self { key: Some(created.plaintext), ..Self::new(created.info, tenant) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(more: Value) -> Result<KeyRequest, RequestError> {
        let mut body = json!({"name": "n", "tenant": "default"});
        let Value::Object(more) = more else { panic!("an object") };
        body.as_object_mut().expect("an object").extend(more);
        key(crate::json::object(body.to_string().as_bytes()).expect("an object"))
    }

    #[test]
    fn a_wrong_field_of_a_key_is_named() {
        for (more, part) in [
            (json!({"name": null}), "`name`"),
            (json!({"name": "k\u{202e}yek"}), "`name`: has the character U+202E"),
            (json!({"tenant": null}), "`tenant`"),
            (json!({"days": 0}), "`days`"),
            (json!({"days": 1, "expires": 2_000_000_000}), "`expires`"),
            (json!({"expires": -1}), "`expires`"),
            (json!({"operator": "yes"}), "`operator`"),
            (json!({"read_only": 1}), "`read_only`"),
            (json!({"routes": ["cells", "cell"]}), "`cell`"),
            (json!({"routes": "cells"}), "`routes`"),
            (json!({"tables": ["a", 5]}), "`tables[1]`"),
            (json!({"tables": vec!["a"; 1_001]}), "more than 1000"),
            (json!({"x": 1}), "`x`"),
        ] {
            let error = read(more.clone()).expect_err("refused").to_string();
            assert!(error.contains(part), "{more}: {error:?} lacks {part:?}");
        }
    }

    #[test]
    fn a_key_may_all_that_its_scope_does_not_name() {
        let asked = read(json!({})).expect("good");
        assert_eq!((asked.scope, asked.expiry), (KeyScope::ALL, KeyExpiry::Never));
        let asked = read(json!({"read_only": true, "tables": ["orders"], "expires": 7})).expect("good");
        let list = |name: &str| Some(vec![name.to_owned()]);
        let expected = KeyScope { is_read_only: true, routes: list("sql"), tables: list("orders") };
        assert_eq!(asked.scope, expected, "tables alone are of SQL alone");
        assert_eq!(asked.expiry.from(UnixMillis(6_999)), Ok(Some(UnixMillis(7_000))));
        for now in [7_000, 9_500] {
            let error = asked.expiry.from(UnixMillis(now)).expect_err("it has passed").to_string();
            let limit = format!("later than now, which is {}", now / 1_000);
            assert!(error.contains("`expires`") && error.contains(&limit), "{error}");
        }
        let asked = read(json!({"routes": ["files"], "tables": [], "days": 1})).expect("good");
        assert_eq!((asked.scope.routes, asked.scope.tables), (list("files"), Some(Vec::new())));
        assert_eq!(asked.expiry.from(UnixMillis(1)), Ok(Some(UnixMillis(86_400_001))));
    }
}
