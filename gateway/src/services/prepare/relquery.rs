//! `/v1/relqueries`: a template and the rows of a table.

use ir::{Cell, Plan, Template};
use serde_json::Value;
use serving::clock::Deadline;
use serving::error::RequestError;
use serving::intake::TemplateRows;
use serving::relquery_state::RelQueryKind;
use serving::submit::Prepared;

use super::columns::{check_dependencies, columns, record_of, same_keys};
use super::rows::{Lowering, TableRows, some_can_run};
use super::{Outline, PreparedRequest, RequestContext, Wanted};
use crate::config::LimitsConfig;
use crate::json::JsonFields;
use crate::wire::relquery::{Order, RelQueryRequest, RowIn};

/// Its name in accounts.
const ROUTE: &str = "relqueries";

impl Wanted for RelQueryRequest {
    fn read(context: RequestContext<'_>, fields: JsonFields) -> Result<Self, RequestError> {
        Self::read(fields, context.validation())
    }

    fn outline(&self) -> Outline {
        Outline {
            route: ROUTE,
            kind: RelQueryKind::RelQuery,
            rows: self.rows.len(),
            stream: self.stream,
            deadline: self.deadline,
        }
    }

    fn lower(self, context: RequestContext<'_>) -> Result<PreparedRequest, RequestError> {
        lower_relquery(context, self)
    }
}

fn lower_relquery(
    context: RequestContext<'_>,
    request: RelQueryRequest,
) -> Result<PreparedRequest, RequestError> {
    let (app, model) = (context.app, context.model.model());
    let template = Template::parse(&request.template)
        .map_err(|error| RequestError::invalid("template", error.to_string()))?;
    let columns = columns(&request, &template)?;
    template.check_columns(&columns).map_err(|error| RequestError::invalid("template", error.to_string()))?;
    check_dependencies(&request, &columns, &template)?;
    let mut rows = TableRows::default();
    let is_open = request.columns.is_none() && template.has_record();
    for (index, row) in (0..).zip(&request.rows) {
        let known = if is_open { same_keys(index, row, &columns) } else { Ok(()) };
        match known.and_then(|()| row_cells(index, row, &columns, &app.config.limits)) {
            Ok(cells) if request.order == Order::Sent => {
                rows.push_in_order(index, cells, record_of(row, &columns, &template));
            }
            Ok(cells) => rows.push(index, cells),
            Err(error) => rows.failed.push((index, error)),
        }
    }
    let chat = request.chat.unwrap_or(model.has_chat);
    if chat && !model.has_chat {
        return Err(RequestError::invalid("chat", "the model has no chat template"));
    }
    let lowering = Lowering {
        model,
        config: &app.config,
        sampling: &request.sampling,
        cache: request.cache,
        order: request.order,
        dependencies: &request.dependencies,
        truncates: false,
    };
    let plan = |table| {
        let generation = (*request.sampling.generation).clone();
        Plan::relquery(&template, request.system.as_deref(), chat, table, generation)
    };
    let (part, failed) = rows.lower(columns, plan, lowering)?;
    let total = request.rows.len();
    let work = Prepared {
        kind: RelQueryKind::RelQuery,
        route: ROUTE,
        class: request.class,
        rows: total,
        failed: some_can_run(total, failed)?,
        answered: Vec::new(),
        deadline: request.deadline.map(|span| Deadline::new(context.arrival, span)),
        pin: None,
        parts: vec![TemplateRows { label: request.label, ..part }],
    };
    Ok(PreparedRequest { work, stream: request.stream })
}

/// The cells of one row, in the order of the columns.
fn row_cells(
    index: u32,
    row: &RowIn,
    columns: &[String],
    limits: &LimitsConfig,
) -> Result<Vec<Cell>, RequestError> {
    match row {
        RowIn::List(values) if values.len() != columns.len() => Err(RequestError::invalid(
            format!("rows[{index}]"),
            format!("has {} cells, the table has {} columns", values.len(), columns.len()),
        )),
        RowIn::List(values) => {
            values.iter().zip(columns).map(|(value, name)| cell(index, name, value, limits)).collect()
        }
        RowIn::Named(map) => {
            let one = |name: &String| match map.get(name) {
                Some(value) => cell(index, name, value, limits),
                None => Err(RequestError::invalid(format!("rows[{index}]"), format!("has no `{name}`"))),
            };
            columns.iter().map(one).collect()
        }
    }
}

/// One cell, within its limit.
fn cell(index: u32, name: &str, value: &Value, limits: &LimitsConfig) -> Result<Cell, RequestError> {
    let field = || format!("rows[{index}].{name}");
    let Some(cell) = Cell::from_json(value) else {
        return Err(RequestError::invalid(field(), "must be a string, a number, a boolean or null"));
    };
    let bytes = cell.text().len() as u64;
    if bytes > limits.cell_bytes_max.0 {
        let limit = format!("{} bytes", limits.cell_bytes_max.0);
        return Err(RequestError::TooLarge { what: format!("`{}` of {bytes} bytes", field()), limit });
    }
    Ok(cell)
}
