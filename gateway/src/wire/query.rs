//! `/v1/query` on the wire: span queries and what comes of them.

pub mod reply;

use base::{Millis, ServiceClass};
use ir::Rules;
use ir::span::{RULES, SpanError, SpanLimits, SpanQuery};
use serde_json::Value;
use serving::error::RequestError;

use crate::config::LimitsConfig;
use crate::json::JsonFields;
use crate::wire::ValidationContext;
use crate::wire::relquery::{check_model, class, deadline, repair_tokens};

/// Candidates that one judge can be given.
const JUDGES_MAX: u64 = 1_000;

/// A body of `POST /v1/query`.
#[derive(Clone, Debug)]
pub struct QueryRequest {
    /// The queries; one, unless the request has `queries`.
    pub queries: Vec<SpanQuery>,
    /// Whether it has.
    pub is_bulk: bool,
    /// The rules that may run.
    pub rules: Rules,
    /// Candidates that one judge sees (section 6).
    pub judges: Option<u32>,
    /// First tokens of each span that are computed again; else the configuration says.
    pub repair_tokens: Option<u32>,
    /// Whether the reply says what became of the query.
    pub explain: bool,
    /// Who waits.
    pub class: ServiceClass,
    /// As events.
    pub stream: bool,
    /// When its answer is no longer waited for.
    pub deadline: Option<Millis>,
}

impl QueryRequest {
    /// Reads and checks the fields.
    pub fn read(mut fields: JsonFields, context: ValidationContext<'_>) -> Result<Self, RequestError> {
        check_model(&mut fields, context.model)?;
        let limits = limits(context.limits);
        let read = |value: &Value, path: &str| {
            SpanQuery::read(value, &limits).map_err(|error| span_error(path, error))
        };
        let (queries, is_bulk) = match (fields.take("query"), fields.array("queries")?) {
            (Some(one), None) => (vec![read(&one, "query")?], false),
            (None, Some(many)) => {
                let limit = context.limits.rows_max;
                if many.is_empty() || many.len() > limit {
                    return fields
                        .bad("queries", format!("must have 1 to {limit} queries (limits.rows_max)"));
                }
                let many =
                    many.iter().enumerate().map(|(index, query)| read(query, &format!("queries[{index}]")));
                (many.collect::<Result<_, _>>()?, true)
            }
            (None, None) => return fields.bad("query", "is required, or `queries`"),
            (Some(_), Some(_)) => return fields.bad("queries", "cannot stand beside `query`"),
        };
        let request = Self {
            queries,
            is_bulk,
            rules: rules(&mut fields)?,
            judges: fields
                .integer("tree_reduce", 2, JUDGES_MAX)?
                .and_then(|judges| u32::try_from(judges).ok()),
            repair_tokens: repair_tokens(&mut fields, context)?,
            explain: fields.bool("explain")?.unwrap_or(false),
            class: class(&mut fields)?,
            stream: fields.bool("stream")?.unwrap_or(false),
            deadline: deadline(&mut fields)?,
        };
        if request.stream && is_bulk {
            return fields.bad("stream", "is for one `query`");
        }
        fields.finish()?;
        Ok(request)
    }

    /// The field of a query.
    pub fn path(&self, index: usize) -> String {
        if self.is_bulk { format!("queries[{index}]") } else { "query".into() }
    }
}

/// `rules_off`: names of rules that do not run.
fn rules(fields: &mut JsonFields) -> Result<Rules, RequestError> {
    let mut rules = Rules::all();
    for (index, name) in fields.array("rules_off")?.into_iter().flatten().enumerate() {
        let known = RULES.iter().find(|rule| name.as_str() == Some(rule.name));
        let Some(rule) = known else {
            let names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
            return fields
                .bad(&format!("rules_off[{index}]"), format!("must be one of {}", names.join(", ")));
        };
        rules = rules.without(rule.name);
    }
    Ok(rules)
}

/// The bounds of a query.
pub fn limits(limits: &LimitsConfig) -> SpanLimits {
    let bytes_max = usize::try_from(limits.body_bytes_max.0).unwrap_or(usize::MAX);
    SpanLimits { nodes_max: limits.query_nodes_max, bytes_max, ..SpanLimits::default() }
}

/// What is wrong with a query, at its place in the request.
pub fn span_error(path: &str, error: SpanError) -> RequestError {
    match error {
        SpanError::At { path: inside, reason } => {
            let inside = inside.strip_prefix('$').unwrap_or(&inside);
            RequestError::invalid(format!("{path}{inside}"), reason)
        }
        other => RequestError::invalid(path, other.to_string()),
    }
}
