//! Which columns the table of a relQuery has, and which of them stand in its records, in which order.

use ir::Template;
use serving::error::RequestError;

use crate::wire::relquery::{Order, RelQueryRequest, RowIn};

/// Refuses dependencies that nothing is ordered by, or of columns that stand in no record.
pub(super) fn check_dependencies(
    request: &RelQueryRequest,
    columns: &[String],
    template: &Template,
) -> Result<(), RequestError> {
    if request.order != Order::Fields && !request.dependencies.is_empty() {
        return Err(RequestError::invalid("dependencies", "are for `\"order\": \"fields\"`"));
    }
    let reason = |name: &String| match columns.contains(name) {
        false => Some(format!("there is no column `{name}`")),
        true if template.fields().contains(&name.as_str()) => {
            Some(format!("the template names `{name}`, so that it is not in the record"))
        }
        true => None,
    };
    for (index, group) in request.dependencies.iter().enumerate() {
        if let Some(reason) = group.iter().find_map(reason) {
            return Err(RequestError::invalid(format!("dependencies[{index}]"), reason));
        }
    }
    Ok(())
}

/// The columns of a row's record in the order of the row's keys; of a list, in that of the columns.
pub(super) fn record_of(row: &RowIn, columns: &[String], template: &Template) -> Vec<u16> {
    let named = template.fields();
    let position = |name: &String| {
        let position = columns.iter().position(|column| column == name)?;
        u16::try_from(position).ok().filter(|_| !named.contains(&name.as_str()))
    };
    match row {
        RowIn::List(_) => columns.iter().filter_map(position).collect(),
        RowIn::Named(cells) => cells.keys().filter_map(position).collect(),
    }
}

/// Names of the table's columns: as the client gives them, else those that the template names. A record holds
/// the other columns too; without a list of them, those of the first row.
pub(super) fn columns(request: &RelQueryRequest, template: &Template) -> Result<Vec<String>, RequestError> {
    if matches!(request.order, Order::Fields | Order::Sent) && !template.has_record() {
        let reason = "`fields` and `sent` need `{*}` in the template, where the order of columns may differ";
        return Err(RequestError::invalid("order", reason));
    }
    match (&request.columns, request.rows.first()) {
        (Some(columns), _) => Ok(columns.clone()),
        (None, Some(RowIn::Named(first))) if template.has_record() => Ok(first.keys().cloned().collect()),
        (None, _) if template.has_record() => Err(RequestError::invalid(
            "columns",
            "is required where the template has `{*}` and rows are arrays",
        )),
        (None, _) => Ok(template.fields().into_iter().map(str::to_owned).collect()),
    }
}

/// Refuses a row with a cell that the first row has none for: a record of some of a row's cells would be no
/// record of it.
pub(super) fn same_keys(index: u32, row: &RowIn, columns: &[String]) -> Result<(), RequestError> {
    let RowIn::Named(cells) = row else { return Ok(()) };
    match cells.keys().find(|key| !columns.contains(key)) {
        Some(key) => Err(RequestError::invalid(
            format!("rows[{index}]"),
            format!("has `{key}`, which the first row lacks; name the columns of `{{*}}` in `columns`"),
        )),
        None => Ok(()),
    }
}
