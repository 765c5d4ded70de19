//! SQL: where its clients connect, what they can read, and what a statement may take.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use base::{Bytes, TokenCount};
use serde::{Deserialize, Serialize};
use serving::config::{InvalidConfig, invalid};
use sql::budget::{BudgetLimit, BudgetLimits};
use sql::scans::ScanningTool;

use super::Secret;
use super::certificate::CertificateFiles;

/// SQL for BI tools, over the Postgres protocol. `/v1/sql` needs none of its addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqlConfig {
    /// Address and port of the Postgres protocol; without it `/v1/sql` is the only way in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Where tenants' tables are, a folder for each by its number; `tables` in `store.data_dir` without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Databases whose tables are a schema of this name, for every tenant: `postgres://..` or `sqlite://..`.
    pub sources: BTreeMap<String, Secret>,
    /// Connections at a time; more are refused.
    pub connections_max: usize,
    /// Bytes that sorts, joins and groups of all statements hold; what needs more uses files.
    pub memory_bytes_max: Bytes,
    /// Bytes in such files.
    pub spill_bytes_max: Bytes,
    /// Bytes of a file that one `CREATE TABLE .. AS` makes.
    pub created_bytes_max: Bytes,
    /// Bytes of all files that a tenant's `CREATE TABLE` and `INSERT` made, temporary tables among them; at least
    /// `created_bytes_max`. More are refused until some are dropped.
    pub tenant_created_bytes_max: Bytes,
    /// Tools whose own scans (fingerprints, samples) read known AI answers and compute none: metabase,
    /// superset. `SET relserve.cached_only = false` computes all the same.
    pub cached_only_scans: Vec<String>,
    /// What SQL of tenants may compute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<SqlBudget>,
    /// Statements of `/v1/sql` that go on under tickets after their deadlines, at a time.
    pub tickets_max: usize,
    /// Bytes of rows, as JSON lines, that one ticket keeps; and as many of answers of its calls, while it runs.
    pub ticket_bytes_max: Bytes,
    /// The certificates of TLS (PEM), the server's own first; absent: those of `[server]`, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The key of the certificate (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_key: Option<PathBuf>,
    /// Refuses connections that are not encrypted, of this machine too.
    pub require_tls: bool,
}

impl Default for SqlConfig {
    fn default() -> Self {
        Self {
            listen: None,
            folder: None,
            sources: BTreeMap::new(),
            connections_max: 100,
            memory_bytes_max: Bytes(1 << 30),
            spill_bytes_max: Bytes(16 << 30),
            created_bytes_max: Bytes(4 << 30),
            tenant_created_bytes_max: Bytes(16 << 30),
            cached_only_scans: ScanningTool::ALL.map(|tool| tool.word().to_owned()).into(),
            budgets: Vec::new(),
            tickets_max: 100,
            ticket_bytes_max: Bytes(64 << 20),
            certificate: None,
            certificate_key: None,
            require_tls: false,
        }
    }
}

impl SqlConfig {
    /// Refuses what could not work, and names the field.
    pub(super) fn validate(&self) -> Result<(), InvalidConfig> {
        let positive: &[(&str, u64)] = &[
            ("sql.connections_max", self.connections_max as u64),
            ("sql.memory_bytes_max", self.memory_bytes_max.0),
            ("sql.created_bytes_max", self.created_bytes_max.0),
            ("sql.tickets_max", self.tickets_max as u64),
            ("sql.ticket_bytes_max", self.ticket_bytes_max.0),
        ];
        for (field, value) in positive {
            if *value == 0 {
                return Err(invalid(field, "must be positive"));
            }
        }
        if self.tenant_created_bytes_max < self.created_bytes_max {
            let least = format!("must be at least sql.created_bytes_max ({})", self.created_bytes_max.0);
            return Err(invalid("sql.tenant_created_bytes_max", &least));
        }
        self.scanning_tools()?;
        for (place, budget) in self.budgets.iter().enumerate() {
            if self.budgets[..place].iter().any(|other| other.tenant == budget.tenant) {
                let field = format!("sql.budgets[{place}].tenant");
                let twin = match &budget.tenant {
                    Some(tenant) => format!("`{tenant}` is there twice"),
                    None => "only one budget may be of all others".to_owned(),
                };
                return Err(invalid(&field, &twin));
            }
        }
        self.certificate_files().map(|_| ())
    }

    /// The files of TLS.
    pub(crate) fn certificate_files(&self) -> Result<Option<CertificateFiles>, InvalidConfig> {
        CertificateFiles::of("sql", self.certificate.as_ref(), self.certificate_key.as_ref())
    }

    /// The tools of `cached_only_scans`.
    pub(crate) fn scanning_tools(&self) -> Result<Vec<ScanningTool>, InvalidConfig> {
        let tool =
            |word: &String| word.parse().map_err(|reason: String| invalid("sql.cached_only_scans", &reason));
        self.cached_only_scans.iter().map(tool).collect()
    }

    /// What a tenant of this name may compute in a statement and in a day.
    pub(crate) fn budget_of(&self, tenant: &str) -> [BudgetLimits; 2] {
        let of = |wanted: Option<&str>| self.budgets.iter().find(|budget| budget.tenant.as_deref() == wanted);
        of(Some(tenant)).or(of(None)).map(SqlBudget::limits).unwrap_or_default()
    }
}

/// The most that SQL of a tenant may compute. What is not set has no limit; known answers cost nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqlBudget {
    /// The tenant's name; without it the budget is that of each tenant that has none of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Tokens of prompts and answers that one statement computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement_tokens_max: Option<TokenCount>,
    /// Calls of the model that one statement computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement_calls_max: Option<u64>,
    /// Tokens of prompts and answers that a tenant's statements compute in a day (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_tokens_max: Option<TokenCount>,
    /// Calls of the model that a tenant's statements compute in a day (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day_calls_max: Option<u64>,
}

impl SqlBudget {
    /// The limits of a statement and of a day, with the names of their keys.
    fn limits(&self) -> [BudgetLimits; 2] {
        let section = match &self.tenant {
            Some(tenant) => format!("sql.budgets[{tenant}]"),
            None => "sql.budgets".to_owned(),
        };
        let limit = |key: &str, max: Option<u64>| {
            max.map(|max| BudgetLimit { name: format!("{section}.{key}"), max })
        };
        let tokens = |key: &str, max: Option<TokenCount>| limit(key, max.map(|max| max.0));
        [
            BudgetLimits {
                tokens: tokens("statement_tokens_max", self.statement_tokens_max),
                calls: limit("statement_calls_max", self.statement_calls_max),
            },
            BudgetLimits {
                tokens: tokens("day_tokens_max", self.day_tokens_max),
                calls: limit("day_calls_max", self.day_calls_max),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> SqlConfig {
        toml::from_str(text).expect("a section")
    }

    #[test]
    fn a_tenants_own_budget_takes_the_place_of_the_usual() {
        let config = read(
            "[[budgets]]\nday_tokens_max = 9\nstatement_calls_max = 3\n\
             [[budgets]]\ntenant = \"acme\"\nday_tokens_max = 5\n",
        );
        config.validate().expect("valid");
        let [statement, day] = config.budget_of("other");
        let named = |limit: Option<BudgetLimit>| limit.map(|limit| (limit.name, limit.max));
        assert_eq!(named(statement.calls), Some(("sql.budgets.statement_calls_max".to_owned(), 3)));
        assert_eq!(named(day.tokens), Some(("sql.budgets.day_tokens_max".to_owned(), 9)));
        let [statement, day] = config.budget_of("acme");
        assert_eq!(statement, BudgetLimits::default());
        assert_eq!(named(day.tokens), Some(("sql.budgets[acme].day_tokens_max".to_owned(), 5)));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, field) in [
            ("cached_only_scans = [\"tableau\"]", "sql.cached_only_scans"),
            ("tickets_max = 0", "sql.tickets_max"),
            ("tenant_created_bytes_max = 4294967295", "sql.tenant_created_bytes_max"),
            ("[[budgets]]\n[[budgets]]", "sql.budgets[1].tenant"),
            ("[[budgets]]\ntenant = \"a\"\n[[budgets]]\ntenant = \"a\"", "sql.budgets[1].tenant"),
        ] {
            let error = read(text).validate().expect_err(text).to_string();
            assert!(error.contains(field), "{text}: {error}");
        }
    }
}
