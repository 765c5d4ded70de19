//! JSON shapes of operators' routes: tenants, links that sign somebody in, what operators changed.

use base::Money;
use serde::Serialize;
use serde_json::Value;
use serving::error::RequestError;
use sql::budget::BudgetLimit;
use store::{AuditEntry, CreatedKey, Tenant, TenantLimits};
use utoipa::ToSchema;

use crate::config::Config;
use crate::json::JsonFields;
use crate::services::tenancy::TenantOverview;
use crate::wire::budget::{AmountReply, BudgetReply};
use crate::wire::joiners;
use crate::wire::seconds;
use crate::wire::variations;
use crate::wire::workbooks::{check_letters, name};

/// Letters of a tenant's name, and of a key's.
const NAME_LETTERS_MAX: usize = 100;
/// Largest weight.
const WEIGHT_MAX: f64 = 1e6;

/// Takes the name of a tenant or of a key.
pub(super) fn plain_name(fields: &mut JsonFields) -> Result<String, RequestError> {
    if let Some(text) = fields.text("name") {
        check_visible(&fields.name("name"), text.trim())?;
    }
    name(fields, NAME_LETTERS_MAX)
}

/// The name of a tenant or of a key, without the spaces around it.
///
/// # Errors
/// A name that is empty, too long or on several lines, or that has a hidden character.
pub fn checked_name<'a>(field: &str, name: &'a str) -> Result<&'a str, RequestError> {
    let name = name.trim();
    check_visible(field, name)?;
    check_letters(field, name, NAME_LETTERS_MAX)?;
    Ok(name)
}

/// Refuses the name of a tenant or of a key that has a character which nobody sees, or which turns the text around it:
/// operators tell tenants apart by their names, and read them in lists and logs. Joiners and selectors of forms are let through
/// where a script or an emoji needs them.
///
/// # Errors
/// Such a character, by its code point.
fn check_visible(field: &str, name: &str) -> Result<(), RequestError> {
    let is_hidden = |(at, c): &(usize, char)| {
        let (before, after) = (&name[..*at], &name[*at + c.len_utf8()..]);
        let is_seen = || {
            let joins = joiners::is_joiner(*c) && joiners::is_seen(before, *c, after);
            joins || variations::is_seen(before, *c, after)
        };
        is_invisible(*c) && !is_seen()
    };
    let Some((_, found)) = name.char_indices().find(is_hidden) else { return Ok(()) };
    let code = u32::from(found);
    let reason = if joiners::is_joiner(found) {
        format!(
            "has the character U+{code:04X} where it is not seen: it joins, or keeps apart, letters and emoji that do so"
        )
    } else if variations::is_selector(found) {
        format!(
            "has the character U+{code:04X} where it is not seen: it chooses how an emoji, a Han character or a Mongolian \
             letter before it is drawn"
        )
    } else {
        format!("has the character U+{code:04X}, which is not seen or turns what stands beside it")
    };
    Err(RequestError::invalid(field, reason))
}

/// Whether a character has no form of its own: controls, fillers that are letters or signs to Unicode and draw nothing,
/// selectors of a form of another, and of its format characters those that have zero width, set the direction of text, or
/// tag it. Those that Unicode calls ignorable are all among them, also where it has none yet.
fn is_invisible(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    );
    let is_filler = matches!(
        c,
        '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
    );
    c.is_control() || is_format || is_filler || variations::is_selector(c)
}

/// Refuses the name of a tenant that no URL can have in its path: clients take such a part away before they send it, also
/// where it is percent-encoded.
///
/// # Errors
/// The name.
pub fn check_in_path(field: &str, name: &str) -> Result<(), RequestError> {
    if matches!(name, "." | "..") {
        let reason = format!(
            "must not be `{name}`, which means a folder in a URL: /v1/tenants/{{name}} would not lead to it"
        );
        return Err(RequestError::invalid(field, reason));
    }
    Ok(())
}

/// Takes a string that must be there.
pub fn required(fields: &mut JsonFields, field: &str) -> Result<String, RequestError> {
    match fields.string(field)? {
        Some(text) => Ok(text),
        None => fields.bad(field, "is required"),
    }
}

/// Reads `POST /v1/tenants`: the name, and the weight (1 where none is given).
pub fn tenant(mut fields: JsonFields) -> Result<(String, f64), RequestError> {
    let name = plain_name(&mut fields)?;
    check_in_path(&fields.name("name"), &name)?;
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
        day_cost: take_cost(&mut fields, "day_cost")?,
        month_cost: take_cost(&mut fields, "month_cost")?,
        minute_requests: minute_requests.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        models: models.transpose()?,
    };
    fields.finish()?;
    Ok(limits)
}

/// Takes an amount of money.
fn take_cost(fields: &mut JsonFields, field: &'static str) -> Result<Option<Money>, RequestError> {
    let expected = "from 0 to 1000000000, with six digits behind the point at most";
    let units = fields.number(field, expected, |units| Money::of_units(units).is_some())?;
    Ok(units.and_then(Money::of_units))
}

fn take_weight(fields: &mut JsonFields) -> Result<Option<f64>, RequestError> {
    // A thousandth is the least that the scheduler tells apart.
    fields.number("weight", "from 0.001 to 1000000", |weight| (0.001..=WEIGHT_MAX).contains(&weight))
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
    /// What it may compute, and has.
    #[serde(flatten)]
    budget: BudgetReply,
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
            budget: BudgetReply::default(),
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
        let workbooks = limit("workbooks.tenant_workbooks_max", limits.tenant_workbooks_max);
        let bytes = limit("workbooks.tenant_bytes_max", limits.tenant_bytes_max.0);
        Self {
            keys: Some(overview.keys),
            workbooks: Some(AmountReply::of(overview.workbooks, workbooks)),
            workbook_bytes: Some(AmountReply::of(overview.workbook_bytes.0, bytes)),
            cached_answers: Some(overview.cached_answers),
            budget: BudgetReply::from(overview.budget),
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
    /// `key` and its number, `auth.admin_key`, `command line`, `server start`, `sign-in link`, or `SIGHUP`.
    actor: String,
    /// `key.create`, `key.revoke`, `tenant.create`, `tenant.change`, `sign_in.link`, `replica.add`, `config.reload`, ..
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
    fn a_name_with_a_character_that_nobody_sees_is_refused_by_its_code_point() {
        for (hidden, code) in [
            ('\u{1}', "U+0001"),
            ('\u{1b}', "U+001B"),
            ('\n', "U+000A"),
            ('\u{7f}', "U+007F"),
            ('\u{85}', "U+0085"),
            ('\u{9b}', "U+009B"),
            ('\u{200b}', "U+200B"),
            ('\u{200f}', "U+200F"),
            ('\u{2028}', "U+2028"),
            ('\u{202a}', "U+202A"),
            ('\u{202e}', "U+202E"),
            ('\u{2060}', "U+2060"),
            ('\u{2066}', "U+2066"),
            ('\u{2069}', "U+2069"),
            ('\u{feff}', "U+FEFF"),
            ('\u{e0041}', "U+E0041"),
            ('\u{34f}', "U+034F"),
            ('\u{115f}', "U+115F"),
            ('\u{1160}', "U+1160"),
            ('\u{3164}', "U+3164"),
            ('\u{ffa0}', "U+FFA0"),
            ('\u{2800}', "U+2800"),
            ('\u{1bca0}', "U+1BCA0"),
            ('\u{1d173}', "U+1D173"),
            ('\u{1d17a}', "U+1D17A"),
        ] {
            let body = json!({"name": format!("ac{hidden}me")});
            let error = tenant(fields(&body)).expect_err("refused").to_string();
            assert!(error.contains("`name`") && error.contains(&format!("{code},")), "{code}: {error}");
            let error = plain_name(&mut fields(&body)).expect_err("refused").to_string();
            assert!(error.contains(code), "{code}: {error}");
        }
        for joiner in ['\u{200c}', '\u{200d}'] {
            for name in [format!("ac{joiner}me"), format!("{joiner}acme"), format!("👩{joiner}")] {
                let error = tenant(fields(&json!({"name": name}))).expect_err("refused").to_string();
                let expected = format!("U+{:04X} where it is not seen", u32::from(joiner));
                assert!(error.contains(&expected), "{error}");
            }
        }
        for selector in ['\u{180b}', '\u{fe00}', '\u{fe0f}', '\u{e0100}', '\u{e01ef}'] {
            let name = format!("acme{selector}");
            let error = tenant(fields(&json!({"name": name}))).expect_err("refused").to_string();
            let expected = format!("U+{:04X} where it is not seen", u32::from(selector));
            assert!(error.contains(&expected), "{error}");
        }
        let joined =
            ["می\u{200c}خواهم", "क्\u{200d}ष", "👩\u{200d}💻", "❤\u{fe0f}", "葛\u{e0100}", "ᠨ\u{180b}ᠠ"];
        let plain = ["acme", "Šmíd & söhne", "テナント", "שלום", "a\u{301}", "🙂", " acme\n"];
        for plain in plain.into_iter().chain(joined) {
            let read = tenant(fields(&json!({"name": plain}))).expect("good");
            assert_eq!(read.0, plain.trim());
        }
    }

    #[test]
    fn a_tenant_has_no_name_that_a_url_cannot_have_in_its_path() {
        for name in [".", "..", " .. "] {
            let error = tenant(fields(&json!({"name": name}))).expect_err("refused").to_string();
            let expected = format!("`name`: must not be `{}`", name.trim());
            assert!(error.contains(&expected), "{name}: {error}");
            plain_name(&mut fields(&json!({"name": name}))).expect("a key is named by its number");
        }
        for name in ["...", ".a", "a.b", "a/.."] {
            assert_eq!(tenant(fields(&json!({"name": name}))).expect("good").0, name);
        }
    }

    #[test]
    fn a_wrong_field_of_a_tenant_is_named() {
        for body in [json!({}), json!({"weight": 0}), json!({"weight": -1}), json!({"weight": 1e9})] {
            let error = tenant_change(fields(&body)).expect_err("refused").to_string();
            assert!(error.contains("`weight`"), "{body}: {error}");
        }
        for (limits, part) in [
            (json!(5), "`limits`"),
            (json!({"day_tokens": -1}), "`limits.day_tokens`"),
            (json!({"month_tokens": 1.5}), "`limits.month_tokens`"),
            (json!({"day_tokens": u64::MAX}), "`limits.day_tokens`"),
            (json!({"day_cost": -1}), "`limits.day_cost`"),
            (json!({"month_cost": 0.000_000_1}), "`limits.month_cost`"),
            (json!({"month_cost": "5"}), "`limits.month_cost`"),
            (json!({"minute_requests": 1_u64 << 32}), "`limits.minute_requests`"),
            (json!({"models": ["a", 5]}), "`limits.models[1]`"),
            (json!({"day": 5}), "`limits.day`"),
        ] {
            let error = tenant_change(fields(&json!({"limits": limits}))).expect_err("refused").to_string();
            assert!(error.contains(part), "{limits}: {error:?} lacks {part:?}");
        }
        let asked =
            json!({"limits": {"day_tokens": 5, "month_tokens": null, "day_cost": 0.1, "models": ["a"]}});
        let (limits, _) = tenant_change(fields(&asked)).expect("good").limits.expect("they are there");
        let expected = TenantLimits {
            day_tokens: Some(5),
            day_cost: Some(Money(100_000_000)),
            models: Some(vec!["a".to_owned()]),
            ..TenantLimits::default()
        };
        assert_eq!(limits, expected);
        assert_eq!(tenant(fields(&json!({"name": "zeta"}))).expect("good"), ("zeta".to_owned(), 1.0));
    }
}
