//! JSON shapes of budgets: what was used, and what bounds it.

use base::Money;
use serde::Serialize;
use serving::budgets::{BudgetAmount, BudgetStatus};
use sql::budget::BudgetLimit;
use utoipa::ToSchema;

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
    /// An amount, and what bounds it, if anything does.
    pub fn of(used: u64, limit: Option<BudgetLimit>) -> Self {
        let (setting, max) = limit.map_or((None, None), |limit| (Some(limit.name), Some(limit.max)));
        Self { used, max, setting }
    }
}

/// An amount of money and its bound, in the currency of the prices.
#[derive(Debug, Serialize, ToSchema)]
pub struct MoneyReply {
    used: f64,
    max: f64,
    /// The limit that bounds it.
    setting: &'static str,
}

/// A tenant's budgets, of those limits that it has.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct BudgetReply {
    /// Tokens that it computed today (UTC), on all routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    day_tokens: Option<AmountReply>,
    /// The same of this month.
    #[serde(skip_serializing_if = "Option::is_none")]
    month_tokens: Option<AmountReply>,
    /// Tokens that are set aside for rows of it that run here.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved_tokens: Option<u64>,
    /// What it computed today (UTC) costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    day_cost: Option<MoneyReply>,
    /// The same of this month.
    #[serde(skip_serializing_if = "Option::is_none")]
    month_cost: Option<MoneyReply>,
    /// Money that is set aside for rows of it that run here.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved_cost: Option<f64>,
    /// Requests that it may send in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    minute_requests: Option<u32>,
    /// The only models that it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Vec<String>>,
}

impl From<BudgetStatus> for BudgetReply {
    fn from(status: BudgetStatus) -> Self {
        let BudgetStatus { limits, day, month, reserved } = status;
        let tokens = |max: Option<u64>, used: BudgetAmount, name: &str| {
            max.map(|max| AmountReply::of(used.tokens, Some(BudgetLimit { name: name.to_owned(), max })))
        };
        let money = |max: Option<Money>, used: BudgetAmount, setting| {
            max.map(|max| MoneyReply { used: used.cost.as_units(), max: max.as_units(), setting })
        };
        Self {
            day_tokens: tokens(limits.day_tokens, day, "limits.day_tokens"),
            month_tokens: tokens(limits.month_tokens, month, "limits.month_tokens"),
            reserved_tokens: limits.day_tokens.or(limits.month_tokens).map(|_| reserved.tokens),
            day_cost: money(limits.day_cost, day, "limits.day_cost"),
            month_cost: money(limits.month_cost, month, "limits.month_cost"),
            reserved_cost: limits.day_cost.or(limits.month_cost).map(|_| reserved.cost.as_units()),
            minute_requests: limits.minute_requests,
            models: limits.models,
        }
    }
}
