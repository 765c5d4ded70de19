//! Scans that BI tools make by themselves: they read AI columns of views for nobody.
//!
//! A tool is known by what it sends, which is read in its source:
//!
//! - Metabase names itself `Metabase vX.Y.Z [uuid]` (`mb-version-and-process-identifier`, the JDBC driver's
//!   `ApplicationName`; metabase/metabase, `src/metabase/config/core.clj`, `driver/postgres.clj`). A query of
//!   a person has the remark `-- Metabase:: userID: .. queryHash: ..` before it, one of its own `-- Metabase`
//!   (`default-query->remark` in `query_processor/util.clj`). Fingerprints read 10,000 rows of each table and
//!   view, scans for filters the 1,000 first values of a column, neither with a condition
//!   (`docs/databases/sync-scan.md`). Public dashboards have no `userID` either: they are told by the rest of
//!   the shape.
//! - Superset's samples read all columns of a dataset, no condition, `SAMPLES_ROW_LIMIT` rows (1,000), from
//!   the table or from `(..) AS virtual_table` (apache/superset, `_get_samples` in `common/query_actions.py`,
//!   `VIRTUAL_TABLE_ALIAS`), each column labelled with its own name, which SQLAlchemy writes `id AS id`.
//!   psycopg2 names no application. A table chart of raw records without filters, cut at the same 1,000 rows,
//!   is the same text.

use std::str::FromStr;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, LimitClause, Query, Select, SelectItem, SetExpr, Statement, TableFactor, Value,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// Rows that Metabase's fingerprints read at most.
const FINGERPRINT_ROWS: u64 = 10_000;
/// Rows of Superset's samples.
const SAMPLE_ROWS: u64 = 1_000;
/// Superset's name for a dataset that is a query.
const VIRTUAL_TABLE: &str = "virtual_table";

/// A tool whose scans are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanningTool {
    Metabase,
    Superset,
}

impl ScanningTool {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Metabase, Self::Superset];

    /// Its name in a configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Metabase => "metabase",
            Self::Superset => "superset",
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metabase => "Metabase",
            Self::Superset => "Superset",
        }
    }

    /// Whether it makes such a statement by itself; `application` is the client's `application_name`.
    fn makes(self, application: &str, text: &str) -> bool {
        let may_be = match self {
            Self::Metabase => application.starts_with("Metabase") && !text.contains("userID:"),
            Self::Superset => true,
        };
        may_be && query_of(text).is_some_and(|query| self.has_shape(&query))
    }

    fn has_shape(self, query: &Query) -> bool {
        let Some((limit, select)) = limited(query) else { return false };
        match self {
            Self::Metabase => limit <= FINGERPRINT_ROWS && is_unfiltered(select),
            Self::Superset => limit == SAMPLE_ROWS && is_sample(query, select),
        }
    }
}

impl FromStr for ScanningTool {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|tool| tool.word() == word);
        known.ok_or_else(|| format!("`{word}` is none of {}", Self::ALL.map(Self::word).join(", ")))
    }
}

/// The tool of these that makes such a statement by itself.
pub fn tool_of(tools: &[ScanningTool], application: &str, text: &str) -> Option<ScanningTool> {
    tools.iter().copied().find(|tool| tool.makes(application, text))
}

fn query_of(text: &str) -> Option<Box<Query>> {
    match <[_; 1]>::try_from(Parser::parse_sql(&PostgreSqlDialect {}, text).ok()?) {
        Ok([Statement::Query(query)]) => Some(query),
        _ => None,
    }
}

/// A plain SELECT and its limit.
fn limited(query: &Query) -> Option<(u64, &Select)> {
    let Some(LimitClause::LimitOffset { limit: Some(Expr::Value(limit)), .. }) = &query.limit_clause else {
        return None;
    };
    let Value::Number(limit, _) = &limit.value else { return None };
    Some((limit.parse().ok()?, select_of(query)?))
}

fn select_of(query: &Query) -> Option<&Select> {
    match (&query.with, &*query.body) {
        (None, SetExpr::Select(select)) => Some(select),
        _ => None,
    }
}

/// One relation and no condition, at any depth: Metabase shortens texts in a query of its own around the
/// table.
fn is_unfiltered(select: &Select) -> bool {
    let [from] = select.from.as_slice() else { return false };
    let is_plain = select.selection.is_none() && select.having.is_none() && from.joins.is_empty();
    is_plain
        && match &from.relation {
            TableFactor::Table { .. } => true,
            TableFactor::Derived { subquery, .. } => select_of(subquery).is_some_and(is_unfiltered),
            _ => false,
        }
}

fn is_sample(query: &Query, select: &Select) -> bool {
    let [from] = select.from.as_slice() else { return false };
    let is_dataset = match &from.relation {
        TableFactor::Table { alias, .. } => alias.is_none(),
        TableFactor::Derived { alias, .. } => {
            alias.as_ref().is_some_and(|alias| alias.name.value == VIRTUAL_TABLE)
        }
        _ => false,
    };
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    let is_own_name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { expr: Expr::Identifier(name), alias } => name == alias,
        _ => false,
    };
    is_dataset
        && from.joins.is_empty()
        && select.selection.is_none()
        && !is_grouped
        && query.order_by.is_none()
        && !select.projection.is_empty()
        && select.projection.iter().all(is_own_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const METABASE: &str = "Metabase v0.56.3 [6b1f2f0e-7d5c-4b7e-9c0e-0a4c6d1f2b3a]";

    fn check(application: &str, text: &str, expected: Option<ScanningTool>) {
        assert_eq!(tool_of(&ScanningTool::ALL, application, text), expected, "{application}: {text}");
    }

    #[test]
    fn metabase_is_known_by_its_name_its_remark_and_its_shapes() {
        let fingerprint = "SELECT \"public\".\"judged\".\"id\" AS \"id\", \"public\".\"judged\".\"good\" AS \"good\" \
                           FROM \"public\".\"judged\" LIMIT 10000";
        let shortened = "SELECT \"source\".\"text\" AS \"text\" FROM (SELECT SUBSTRING(\"public\".\"judged\".\"text\", 1, 1234) \
                         AS \"text\" FROM \"public\".\"judged\") AS \"source\" LIMIT 10000";
        let values = "SELECT \"public\".\"judged\".\"good\" AS \"good\" FROM \"public\".\"judged\" \
                      GROUP BY \"public\".\"judged\".\"good\" ORDER BY \"public\".\"judged\".\"good\" ASC LIMIT 1000";
        for text in [fingerprint, shortened, values] {
            check(METABASE, &format!("-- Metabase\n{text}"), Some(ScanningTool::Metabase));
            check(METABASE, &format!("-- Metabase:: userID: 1 queryType: MBQL queryHash: ab\n{text}"), None);
            check("psql", text, None);
        }
    }

    #[test]
    fn what_somebody_asks_is_no_scan() {
        for text in [
            "SELECT * FROM judged WHERE good LIMIT 10000",
            "SELECT good, count(*) FROM judged GROUP BY good",
            "SELECT * FROM judged LIMIT 20000",
            "SELECT * FROM a JOIN b ON a.id = b.id LIMIT 10000",
            "SELECT * FROM (SELECT * FROM judged WHERE good) AS source LIMIT 10000",
            "DELETE FROM judged",
            "no SQL at all",
        ] {
            check(METABASE, text, None);
        }
    }

    #[test]
    fn supersets_samples_are_known_by_their_shape() {
        let some = Some(ScanningTool::Superset);
        check("", "SELECT id AS id, \"Good\" AS \"Good\" \nFROM public.judged \n LIMIT 1000", some);
        let virtual_table = "SELECT id AS id, good AS good \nFROM (SELECT id, ai_if(text) AS good FROM reviews\
                             ) AS virtual_table \n LIMIT 1000 OFFSET 0";
        check("", virtual_table, some);
        for text in [
            "SELECT * FROM judged LIMIT 1000",
            "SELECT id, good FROM judged LIMIT 1000",
            "SELECT id AS id FROM judged LIMIT 50",
            "SELECT id AS id FROM judged WHERE good LIMIT 1000",
            "SELECT id AS id FROM judged ORDER BY id LIMIT 1000",
            "SELECT good AS good FROM judged GROUP BY good LIMIT 1000",
            "SELECT id AS id FROM (SELECT * FROM judged) AS mine LIMIT 1000",
        ] {
            check("", text, None);
        }
    }

    #[test]
    fn tools_are_configured_by_their_words() {
        for tool in ScanningTool::ALL {
            assert_eq!(tool.word().parse(), Ok(tool));
        }
        let error = "tableau".parse::<ScanningTool>().unwrap_err();
        assert_eq!(error, "`tableau` is none of metabase, superset");
        assert_eq!(tool_of(&[], METABASE, "SELECT * FROM judged LIMIT 10000"), None);
    }
}
