//! JSON shapes of operators' routes: keys, tenants, links that sign somebody in.

use serde::Serialize;
use serde_json::Value;
use serving::budgets::BudgetStatus;
use serving::error::RequestError;
use sql::budget::BudgetLimit;
use store::{AuditEntry, CreatedKey, KeyInfo, Tenant, TenantLimits};
use utoipa::ToSchema;

use crate::config::Config;
use crate::json::JsonFields;
use crate::services::sql::accounts::user_of;
use crate::services::tenancy::TenantOverview;
use crate::wire::seconds;
use crate::wire::workbooks::name;

/// Letters of a tenant's name, and of a key's.
const NAME_LETTERS_MAX: usize = 100;
/// Longest life of a key, in days.
const DAYS_MAX: u64 = 36_500;
/// Largest weight.
const WEIGHT_MAX: f64 = 1e6;

/// Takes a string that must be there.
pub fn required(fields: &mut JsonFields, field: &str) -> Result<String, RequestError> {
    match fields.string(field)? {
        Some(text) => Ok(text),
        None => fields.bad(field, "is required"),
    }
}

/// A key to make, as it was asked for.
#[derive(Debug)]
pub struct KeyRequest {
    pub name: String,
    /// The tenant's name.
    pub tenant: String,
    /// After which it stops working.
    pub days: Option<u64>,
    pub is_operator: bool,
}

/// Reads `POST /v1/keys`.
pub fn key(mut fields: JsonFields) -> Result<KeyRequest, RequestError> {
    let asked = KeyRequest {
        name: name(&mut fields, NAME_LETTERS_MAX)?,
        tenant: required(&mut fields, "tenant")?,
        days: fields.integer("days", 1, DAYS_MAX)?,
        is_operator: fields.bool("operator")?.unwrap_or(false),
    };
    fields.finish()?;
    Ok(asked)
}

/// Reads `POST /v1/tenants`: the name, and the weight (1 where none is given).
pub fn tenant(mut fields: JsonFields) -> Result<(String, f64), RequestError> {
    let name = name(&mut fields, NAME_LETTERS_MAX)?;
    let weight = take_weight(&mut fields)?.unwrap_or(1.0);
    fields.finish()?;
    Ok((name, weight))
}

/// What of a tenant is to change.
#[derive(Debug, PartialEq)]
pub struct TenantChange {
    pub weight: Option<f64>,
    /// With the object that they were read from.
    pub limits: Option<(TenantLimits, Value)>,
}

/// Reads `POST /v1/tenants/{name}`.
pub fn tenant_change(mut fields: JsonFields) -> Result<TenantChange, RequestError> {
    let weight = take_weight(&mut fields)?;
    let limits = fields.take("limits").map(|value| read_limits(&value).map(|limits| (limits, value)));
    let limits = limits.transpose()?;
    if weight.is_none() && limits.is_none() {
        return fields.bad("weight", "is required, or `limits`");
    }
    fields.finish()?;
    Ok(TenantChange { weight, limits })
}

/// Reads a tenant's limits: one that is not there is no bound.
fn read_limits(value: &Value) -> Result<TenantLimits, RequestError> {
    /// The most that the store keeps.
    const TOKENS_MAX: u64 = i64::MAX as u64;
    let mut fields = JsonFields::nested("limits", value.clone())?;
    let models = fields.array("models")?.map(|names| {
        let name = |(place, name): (usize, Value)| match name {
            Value::String(name) if !name.contains('\0') => Ok(name),
            _ => Err(RequestError::invalid(format!("limits.models[{place}]"), "must be the name of a model")),
        };
        names.into_iter().enumerate().map(name).collect::<Result<Vec<_>, _>>()
    });
    let minute_requests = fields.integer("minute_requests", 0, u64::from(u32::MAX))?;
    let limits = TenantLimits {
        day_tokens: fields.integer("day_tokens", 0, TOKENS_MAX)?,
        month_tokens: fields.integer("month_tokens", 0, TOKENS_MAX)?,
        minute_requests: minute_requests.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        models: models.transpose()?,
    };
    fields.finish()?;
    Ok(limits)
}

fn take_weight(fields: &mut JsonFields) -> Result<Option<f64>, RequestError> {
    // A thousandth is the least that the scheduler tells apart.
    fields.number("weight", "from 0.001 to 1000000", |weight| (0.001..=WEIGHT_MAX).contains(&weight))
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
            sql_user: user_of(tenant, key.id),
            created: seconds(key.created),
            last_used: key.last_used.map(seconds),
            expires: key.expires.map(seconds),
            revoked: key.revoked.map(seconds),
            key: None,
        }
    }

    /// A key that was made just now, with its text.
    pub fn created(created: CreatedKey, tenant: &str) -> Self {
        Self { key: Some(created.plaintext), ..Self::new(created.info, tenant) }
    }
}

/// Who calls.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallerReply {
    /// `caller`.
    object: &'static str,
    /// The tenant's name.
    tenant: String,
    /// Whether the key is an operator's.
    operator: bool,
    /// What tells the tenant's workbooks from all others', of other servers too.
    workbooks: String,
}

impl CallerReply {
    /// A member of the tenant of this name.
    pub fn new(tenant: String, is_operator: bool, workbooks: String) -> Self {
        Self { object: "caller", tenant, operator: is_operator, workbooks }
    }
}

/// What a sign-in link was exchanged for.
#[derive(Debug, Serialize, ToSchema)]
pub struct SignInReply {
    /// `sign_in`.
    object: &'static str,
    /// The key; told once.
    key: String,
    /// The tenant's name.
    tenant: String,
    /// Whether it is an operator's.
    operator: bool,
    /// When the key stops working, unix seconds.
    expires: Option<u64>,
}

impl SignInReply {
    /// A key that was made just now, of a tenant of this name.
    pub fn new(created: CreatedKey, tenant: String) -> Self {
        Self {
            object: "sign_in",
            key: created.plaintext,
            tenant,
            operator: created.info.is_operator,
            expires: created.info.expires.map(seconds),
        }
    }
}

/// An amount and its bound.
#[derive(Debug, Serialize, ToSchema)]
pub struct AmountReply {
    used: u64,
    /// None: as much as it likes.
    max: Option<u64>,
    /// The setting that bounds it.
    setting: Option<String>,
}

impl AmountReply {
    fn of(used: u64, limit: Option<BudgetLimit>) -> Self {
        let (setting, max) = limit.map_or((None, None), |limit| (Some(limit.name), Some(limit.max)));
        Self { used, max, setting }
    }
}

/// A tenant and what it has.
#[derive(Debug, Serialize, ToSchema)]
pub struct TenantReply {
    id: u64,
    /// `tenant`.
    object: &'static str,
    name: String,
    /// Its share of the machine relative to others.
    weight: f64,
    /// Unix seconds; none of the tenant that came with the database.
    created: Option<u64>,
    /// Keys that work.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
    /// Workbooks that it keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    workbooks: Option<AmountReply>,
    /// Bytes of those, older versions included.
    #[serde(skip_serializing_if = "Option::is_none")]
    workbook_bytes: Option<AmountReply>,
    /// Answers in the result cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_answers: Option<u64>,
    /// Tokens that it computed today (UTC), on all routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    day_tokens: Option<AmountReply>,
    /// The same of this month.
    #[serde(skip_serializing_if = "Option::is_none")]
    month_tokens: Option<AmountReply>,
    /// Tokens that are set aside for rows of it that run here.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved_tokens: Option<u64>,
    /// Requests that it may send in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    minute_requests: Option<u32>,
    /// The only models that it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Vec<String>>,
    /// Tokens that its SQL computed today (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    sql_day_tokens: Option<AmountReply>,
    /// Calls that its SQL computed today (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    sql_day_calls: Option<AmountReply>,
}

impl From<Tenant> for TenantReply {
    fn from(tenant: Tenant) -> Self {
        Self {
            id: tenant.id.0,
            object: "tenant",
            name: tenant.name,
            weight: tenant.weight,
            created: tenant.created.map(seconds),
            keys: None,
            workbooks: None,
            workbook_bytes: None,
            cached_answers: None,
            day_tokens: None,
            month_tokens: None,
            reserved_tokens: None,
            minute_requests: None,
            models: None,
            sql_day_tokens: None,
            sql_day_calls: None,
        }
    }
}

impl TenantReply {
    /// A tenant with what it has.
    pub fn with_amounts(overview: TenantOverview, config: &Config) -> Self {
        let limit = |name: &str, max| Some(BudgetLimit { name: name.to_owned(), max });
        let (limits, spent, budget) = (&config.workbooks, overview.spent, overview.day_budget);
        let BudgetStatus { limits: bounds, day, month, reserved } = overview.budget;
        let workbooks = limit("workbooks.tenant_workbooks_max", limits.tenant_workbooks_max);
        let bytes = limit("workbooks.tenant_bytes_max", limits.tenant_bytes_max.0);
        Self {
            keys: Some(overview.keys),
            workbooks: Some(AmountReply::of(overview.workbooks, workbooks)),
            workbook_bytes: Some(AmountReply::of(overview.workbook_bytes.0, bytes)),
            cached_answers: Some(overview.cached_answers),
            day_tokens: bounds.day_tokens.map(|max| AmountReply::of(day, limit("limits.day_tokens", max))),
            month_tokens: bounds
                .month_tokens
                .map(|max| AmountReply::of(month, limit("limits.month_tokens", max))),
            reserved_tokens: (bounds.day_tokens.or(bounds.month_tokens)).map(|_| reserved),
            minute_requests: bounds.minute_requests,
            models: bounds.models,
            sql_day_tokens: Some(AmountReply::of(spent.tokens, budget.tokens)),
            sql_day_calls: Some(AmountReply::of(spent.calls, budget.calls)),
            ..Self::from(overview.tenant)
        }
    }
}

/// Something that an operator changed.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditReply {
    id: u64,
    /// `audit.entry`.
    object: &'static str,
    /// Unix seconds.
    at: u64,
    /// `key` and its number, `auth.admin_key`, or `command line`.
    actor: String,
    /// `key.create`, `key.revoke`, `tenant.create`, `tenant.change`, `sign_in.link`, `replica.add`, ..
    action: String,
    /// What was changed.
    subject: String,
    /// What was asked for.
    #[schema(value_type = Object)]
    details: Value,
    /// Whether it was done; null where the server ended before it could say.
    done: Option<bool>,
}

impl From<AuditEntry> for AuditReply {
    fn from(entry: AuditEntry) -> Self {
        Self {
            id: entry.id,
            object: "audit.entry",
            at: seconds(entry.at),
            actor: entry.actor,
            action: entry.action,
            subject: entry.subject,
            details: serde_json::from_str(&entry.details).unwrap_or(Value::Null),
            done: entry.is_done,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(body: &Value) -> JsonFields {
        crate::json::object(body.to_string().as_bytes()).expect("an object")
    }

    #[test]
    fn a_wrong_field_of_a_key_or_a_weight_is_named() {
        for (body, part) in [
            (json!({"tenant": "default"}), "`name`"),
            (json!({"name": "n"}), "`tenant`"),
            (json!({"name": "n", "tenant": "default", "days": 0}), "`days`"),
            (json!({"name": "n", "tenant": "default", "operator": "yes"}), "`operator`"),
            (json!({"name": "n", "tenant": "default", "x": 1}), "`x`"),
        ] {
            let error = key(fields(&body)).expect_err("refused").to_string();
            assert!(error.contains(part), "{body}: {error:?} lacks {part:?}");
        }
        for body in [json!({}), json!({"weight": 0}), json!({"weight": -1}), json!({"weight": 1e9})] {
            let error = tenant_change(fields(&body)).expect_err("refused").to_string();
            assert!(error.contains("`weight`"), "{body}: {error}");
        }
        for (limits, part) in [
            (json!(5), "`limits`"),
            (json!({"day_tokens": -1}), "`limits.day_tokens`"),
            (json!({"month_tokens": 1.5}), "`limits.month_tokens`"),
            (json!({"day_tokens": u64::MAX}), "`limits.day_tokens`"),
            (json!({"minute_requests": 1_u64 << 32}), "`limits.minute_requests`"),
            (json!({"models": ["a", 5]}), "`limits.models[1]`"),
            (json!({"day": 5}), "`limits.day`"),
        ] {
            let error = tenant_change(fields(&json!({"limits": limits}))).expect_err("refused").to_string();
            assert!(error.contains(part), "{limits}: {error:?} lacks {part:?}");
        }
        let asked = json!({"limits": {"day_tokens": 5, "month_tokens": null, "models": ["a"]}});
        let (limits, _) = tenant_change(fields(&asked)).expect("good").limits.expect("they are there");
        let expected = TenantLimits {
            day_tokens: Some(5),
            models: Some(vec!["a".to_owned()]),
            ..TenantLimits::default()
        };
        assert_eq!(limits, expected);
        assert_eq!(tenant(fields(&json!({"name": "zeta"}))).expect("good"), ("zeta".to_owned(), 1.0));
    }
}
