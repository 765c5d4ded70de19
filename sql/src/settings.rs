//! Settings of AI functions, which a session may `SET`.

use std::ops::RangeInclusive;

use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::{DataFusionError, Result, extensions_options, plan_datafusion_err, plan_err};
use datafusion::logical_expr::SetVariable;
use datafusion::sql::parser::{ResetStatement, Statement};
use datafusion::sql::sqlparser::ast::{self, ContextModifier, Expr, Set};

use crate::query::QueryLimits;
use crate::runner::PromptOrder;
use crate::scans::ScanningTool;
use crate::time_zone::time_zone;

extensions_options! {
    /// Settings of AI functions: `SET relserve.max_tokens = 100000`.
    pub struct AiSettings {
        /// The model that answers calls which name none; unset: the server's default one.
        pub model: Option<String>, default = None
        /// Tokens that a query may compute, prompts and answers; 0: any number.
        pub max_tokens: u64, default = 0
        /// Calls that a query may compute; 0: any number.
        pub max_calls: u64, default = 0
        /// Answers known already are given, nothing is computed. Unset: so for scans that tools make by
        /// themselves.
        pub cached_only: Option<bool>, default = None
        /// Rows of an AI operator that are undecided at a time.
        pub window_rows: u64, default = 2_000
        /// What may be moved in a window so that prompts begin alike: `exact` (nothing), `rows`, or `fields`
        /// (the columns of `{*}` too, which changes prompts).
        pub order: String, default = "rows".to_owned()
        /// Whether AI conditions are decided where they ask least, not where they are written.
        pub place_filters: bool, default = true
    }
}

impl ConfigExtension for AiSettings {
    const PREFIX: &'static str = "relserve";
}

impl AiSettings {
    /// The setting of the model, as it is set.
    pub(crate) const MODEL: &str = "relserve.model";

    /// What is wrong with a setting of AI functions, as it is set; those of others are theirs.
    ///
    /// # Errors
    /// One that names it, with what it may be.
    pub(crate) fn check(variable: &str, value: &str) -> Result<()> {
        let name = variable.to_ascii_lowercase();
        let Some(name) = name.strip_prefix(Self::PREFIX).and_then(|name| name.strip_prefix('.')) else {
            return Ok(());
        };
        if let Some(range) = range_of(variable) {
            return match value.parse().is_ok_and(|number: u64| range.contains(&number)) {
                true => Ok(()),
                false => plan_err!("{variable} {}, not `{value}`", limits_of(&range)),
            };
        }
        match name {
            "model" if value.is_empty() => {
                plan_err!(
                    "{variable} must be the name of a model, not ``; where none is set the default one answers"
                )
            }
            "model" => Ok(()),
            "order" => order_of(value).map(drop),
            "cached_only" | "place_filters" => match value.to_ascii_lowercase().as_str() {
                "true" | "false" => Ok(()),
                _ => plan_err!("{variable} must be true or false, not `{value}`"),
            },
            _ => plan_err!("there is no setting {variable}"),
        }
    }

    /// The model that is set.
    pub(crate) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Gives a setting the value that it had at first: DataFusion resets its own settings only.
    ///
    /// # Errors
    /// Where there is no setting of this name.
    pub(crate) fn reset(&mut self, name: &str, initial: &Self) -> Result<()> {
        match name {
            "model" => self.model.clone_from(&initial.model),
            "max_tokens" => self.max_tokens = initial.max_tokens,
            "max_calls" => self.max_calls = initial.max_calls,
            "cached_only" => self.cached_only = initial.cached_only,
            "window_rows" => self.window_rows = initial.window_rows,
            "order" => self.order.clone_from(&initial.order),
            "place_filters" => self.place_filters = initial.place_filters,
            other => return plan_err!("there is no setting relserve.{other}"),
        }
        Ok(())
    }

    /// What they let a query do; `scan`: the tool that makes it by itself.
    ///
    /// # Errors
    /// An order that is none.
    pub(crate) fn limits(&self, scan: impl FnOnce() -> Option<ScanningTool>) -> Result<QueryLimits> {
        let order = order_of(&self.order)?;
        let scan = if self.cached_only.is_none() { scan() } else { None };
        Ok(QueryLimits {
            window_rows: usize::try_from(self.window_rows).unwrap_or(usize::MAX),
            max_tokens: self.max_tokens,
            max_calls: self.max_calls,
            cached_only: self.cached_only.unwrap_or(scan.is_some()),
            order,
            scan,
        })
    }
}

fn order_of(value: &str) -> Result<PromptOrder> {
    match value {
        "exact" => Ok(PromptOrder::Exact),
        "rows" => Ok(PromptOrder::Rows),
        "fields" => Ok(PromptOrder::Fields),
        other => plan_err!("relserve.order must be exact, rows or fields, not `{other}`"),
    }
}

/// What is to be set, where it may be: a time zone in a form that DataFusion reads, which takes any text for one and fails
/// where the first statement asks for the time.
///
/// # Errors
/// One that says what it may be.
pub(crate) fn checked(set: &SetVariable) -> Result<SetVariable> {
    let SetVariable { variable, value } = set;
    AiSettings::check(variable, value)?;
    let value = match variable.as_str() {
        TIME_ZONE => time_zone(value).ok_or_else(|| {
            plan_datafusion_err!(
                "`{value}` is no time zone: it has a name, such as Europe/Berlin, or hours and minutes, such as +05:30"
            )
        })?,
        _ => value.clone(),
    };
    Ok(SetVariable { variable: variable.clone(), value })
}

/// The setting that DataFusion takes `timezone` for.
const TIME_ZONE: &str = "datafusion.execution.time_zone";

/// `SET name TO DEFAULT` as the `RESET name` that it is: to DataFusion the word is a value like others.
pub(crate) fn default_as_reset(statement: Statement) -> Statement {
    let name = match &statement {
        Statement::Statement(set) => match &**set {
            ast::Statement::Set(Set::SingleAssignment {
                scope: None | Some(ContextModifier::Session),
                variable,
                values,
                ..
            }) => is_default(values).then(|| variable.clone()),
            _ => None,
        },
        _ => None,
    };
    name.map_or(statement, |name| Statement::Reset(ResetStatement::Variable(name)))
}

/// Whether a setting is to have the value that it had at first.
pub(crate) fn is_default(values: &[Expr]) -> bool {
    let [Expr::Identifier(word)] = values else { return false };
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default")
}

/// What is wrong with a value that DataFusion has refused for a setting: its own words do not name it.
pub(crate) fn refused(options: &ConfigOptions, variable: &str, value: &str) -> DataFusionError {
    let found = options.entries().into_iter().find(|entry| entry.key.eq_ignore_ascii_case(variable));
    let Some(entry) = found else { return plan_datafusion_err!("there is no setting {variable}") };
    match entry.value.as_deref() {
        Some("true" | "false") => plan_datafusion_err!("{variable} must be true or false, not `{value}`"),
        Some(number) if number.parse::<u64>().is_ok() && value.parse::<u64>().is_err() => {
            plan_datafusion_err!("{variable} must be a whole number, not `{value}`")
        }
        _ => plan_datafusion_err!("{variable} cannot be `{value}`"),
    }
}

/// The numbers that a setting may be, by its whole name; `None`: it is no number.
fn range_of(variable: &str) -> Option<RangeInclusive<u64>> {
    match variable.to_ascii_lowercase().as_str() {
        "relserve.max_tokens" | "relserve.max_calls" => Some(0..=u64::MAX),
        "relserve.window_rows" => Some(1..=u64::MAX),
        _ => None,
    }
}

/// The limits of a setting that is a number, in words, by its whole name.
pub fn number_limits(variable: &str) -> Option<String> {
    range_of(variable).as_ref().map(limits_of)
}

fn limits_of(range: &RangeInclusive<u64>) -> String {
    format!("must be a whole number from {} to {}", range.start(), range.end())
}

#[cfg(test)]
mod tests {
    use datafusion::common::config::ExtensionOptions as _;
    use datafusion::logical_expr::SetVariable;

    use super::{AiSettings, checked};

    #[test]
    fn every_setting_can_be_reset() {
        let usual = AiSettings::default();
        for entry in usual.entries() {
            let mut settings = AiSettings::default();
            let value = match entry.value.as_deref() {
                Some("true") => "false",
                Some(number) if number.parse::<u64>().is_ok() => "7",
                Some(_) => "fields",
                None => "true",
            };
            let name = entry.key.rsplit('.').next().unwrap_or_default().to_owned();
            let shown = |settings: &AiSettings| {
                let found = settings.entries().into_iter().find(|other| other.key == entry.key);
                found.and_then(|found| found.value)
            };
            settings.set(&name, value).expect("it can be set");
            assert_eq!(shown(&settings).as_deref(), Some(value), "{name}");
            let mut other = AiSettings::default();
            other.reset(&name, &settings).expect("it can be reset");
            assert_eq!(shown(&other).as_deref(), Some(value), "{name}: as it was at first");
            settings.reset(&name, &usual).expect("it can be reset");
            assert_eq!(shown(&settings), entry.value, "{name}");
        }
        assert!(AiSettings::default().reset("none", &usual).is_err());
    }

    #[test]
    fn a_number_that_a_setting_cannot_be_is_told_with_the_limits() {
        for (name, value, from) in [
            ("relserve.max_tokens", "-1", 0),
            ("relserve.max_calls", "1.5", 0),
            ("relserve.max_calls", " 5 ", 0),
            ("relserve.max_tokens", "18446744073709551616", 0),
            ("relserve.window_rows", "0", 1),
            ("Relserve.Window_Rows", "many", 1),
        ] {
            let error = AiSettings::check(name, value).expect_err("it is refused").to_string();
            let expected =
                format!("{name} must be a whole number from {from} to 18446744073709551615, not `{value}`");
            assert!(error.contains(&expected), "{error}");
        }
        for (name, value) in [
            ("relserve.window_rows", "1"),
            ("relserve.max_tokens", "0"),
            ("relserve.model", "-1"),
            ("relserve.order", "exact"),
            ("relserve.cached_only", "TRUE"),
            ("datafusion.optimizer.max_passes", "x"),
        ] {
            AiSettings::check(name, value).expect("it is taken");
        }
    }

    #[test]
    fn what_a_setting_cannot_be_is_told_with_its_name_and_what_it_may_be() {
        for (name, value, expected) in [
            ("relserve.cached_only", "maybe", "relserve.cached_only must be true or false, not `maybe`"),
            ("relserve.place_filters", "1", "relserve.place_filters must be true or false, not `1`"),
            ("relserve.order", "best", "relserve.order must be exact, rows or fields, not `best`"),
            ("relserve.nonsense", "1", "there is no setting relserve.nonsense"),
            ("relserve.model", "", "relserve.model must be the name of a model, not ``"),
        ] {
            let error = AiSettings::check(name, value).expect_err("it is refused").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_time_zone_is_kept_as_datafusion_reads_it_and_another_text_is_none() {
        let set = |value: &str| SetVariable {
            variable: "datafusion.execution.time_zone".to_owned(),
            value: value.to_owned(),
        };
        for (value, kept) in [("Europe/Berlin", "Europe/Berlin"), ("utc", "UTC"), ("2", "+02:00")] {
            assert_eq!(checked(&set(value)).expect("it is one").value, kept);
        }
        let error = checked(&set("Nowhere")).expect_err("it is none").to_string();
        assert!(error.contains("`Nowhere` is no time zone"), "{error}");
    }
}
