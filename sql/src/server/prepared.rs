//! Prepared statements and portals: what they hold, and how their parameters are typed and read.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_pg::datatypes::df::deserialize_parameters_with_server_types;
use arrow_pg::datatypes::into_pg_type;
use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DFSchema, ParamValues, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, visit_expressions};
use pgwire::api::stmt::StoredStatement;
use pgwire::messages::extendedquery as message;
use postgres_types::Type;

use super::command::SessionCommand;
use super::error::{SqlError, code};
use super::frontend::Bind;
use super::rows::{Columns, Rows};

/// A prepared statement.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) text: String,
    /// None: a text without a statement.
    pub(super) command: Option<SessionCommand>,
    pub(super) plan: Option<LogicalPlan>,
    pub(super) parameters: Parameters,
    /// None: it gives no rows.
    pub(super) columns: Option<Columns>,
}

/// Types of a statement's parameters.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    /// What the client said.
    pub(super) hints: Vec<Option<Type>>,
    /// What the plan needs.
    pub(super) needed: Vec<Option<DataType>>,
    /// What the client is told.
    pub(super) types: Vec<Type>,
}

/// A statement with its parameters, and what is left of its rows.
pub(super) struct Portal {
    pub(super) statement: Arc<Prepared>,
    pub(super) values: Option<ParamValues>,
    pub(super) formats: Vec<i16>,
    pub(super) state: PortalState,
}

/// How far a portal is.
pub(super) enum PortalState {
    Bound,
    Open { rows: Rows, word: &'static str },
    Done,
}

/// Parameters of a statement at most, as many as the protocol can count.
const PARAMETERS_MAX: usize = 65_535;

impl Parameters {
    /// Finds out what types a plan's parameters have, and what the client is told of them.
    pub(super) fn resolve(&mut self, plan: &LogicalPlan) -> Result<(), SqlError> {
        for (name, needed) in plan.get_parameter_types()? {
            let place =
                name.trim_start_matches('$').parse::<usize>().ok().and_then(|place| place.checked_sub(1));
            let Some(place) = place.filter(|place| *place < PARAMETERS_MAX) else {
                return Err(SqlError::new(code::SYNTAX, format!("there is no parameter {name}")));
            };
            if self.needed.len() <= place {
                self.needed.resize(place + 1, None);
            }
            self.needed[place] = match needed {
                Some(needed) => Some(needed),
                None => match self.hints.get(place) {
                    Some(Some(_)) => list_type(plan, &name)?,
                    _ => list_type(plan, &name)?.or(cast_or_limit(plan, &name)?),
                },
            };
        }
        let count = self.needed.len().max(self.hints.len());
        self.needed.resize(count, None);
        self.hints.resize(count, None);
        self.types = self
            .hints
            .iter()
            .zip(&self.needed)
            .map(|(hint, needed)| match (hint, needed) {
                (Some(hint), _) => Ok(hint.clone()),
                (None, Some(DataType::Null) | None) => Ok(Type::TEXT),
                (None, Some(needed)) => into_pg_type(needed),
            })
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Tells the client of numbers of objects where a statement casts a parameter to `oid[]`: asyncpg knows
    /// no array of integers before it has asked.
    pub(super) fn note_numbers(&mut self, statement: &Statement) {
        let Statement::Statement(statement) = statement else { return };
        let _: ControlFlow<()> = visit_expressions(statement.as_ref(), |expr| {
            if let ast::Expr::Cast { expr, data_type, .. } = expr
                && data_type.to_string().eq_ignore_ascii_case("oid[]")
                && let ast::Expr::Value(value) = expr.as_ref()
                && let ast::Value::Placeholder(name) = &value.value
                && let Ok(place) = name.trim_start_matches('$').parse::<usize>()
                && let Some(declared) = place.checked_sub(1).and_then(|place| self.types.get_mut(place))
            {
                *declared = Type::OID_ARRAY;
            }
            ControlFlow::Continue(())
        });
    }

    /// The columns of a plan whose parameters have these types.
    pub(super) fn columns(&self, plan: &LogicalPlan, names: Option<&[String]>) -> Result<Columns, SqlError> {
        if self.types.is_empty() {
            return Columns::new(plan.schema().as_arrow(), names);
        }
        let nulls = self.types.iter().zip(&self.needed).map(|(declared, needed)| {
            let data_type = match needed {
                Some(needed) if *needed != DataType::Null => needed.clone(),
                _ => arrow_type(declared),
            };
            ScalarValue::try_from(&data_type).unwrap_or(ScalarValue::Utf8(None))
        });
        let values = ParamValues::from(nulls.collect::<Vec<_>>());
        // A plan that takes no NULL has the columns that it had.
        let filled = plan.clone().with_param_values(values);
        Columns::new(filled.as_ref().unwrap_or(plan).schema().as_arrow(), names)
    }

    /// Reads the values of a `Bind`; `None` where the statement has no parameters.
    pub(super) fn values(&self, bind: Bind) -> Result<Option<ParamValues>, SqlError> {
        let count = bind.parameters.len();
        if count != self.types.len() {
            let message = format!(
                "bind message supplies {count} parameters, but prepared statement \"{}\" requires {}",
                bind.statement,
                self.types.len()
            );
            return Err(SqlError::new(code::PROTOCOL_VIOLATION, message));
        }
        if bind.parameter_formats.len() > 1 && bind.parameter_formats.len() != count {
            let message = format!(
                "bind message has {} parameter formats but {count} parameters",
                bind.parameter_formats.len()
            );
            return Err(SqlError::new(code::PROTOCOL_VIOLATION, message));
        }
        if count == 0 {
            return Ok(None);
        }
        let hints = self.hints.iter().map(|hint| hint.as_ref().map(readable)).collect();
        let statement = StoredStatement::new(String::new(), (), hints);
        let bound = message::Bind::new(None, None, bind.parameter_formats, bind.parameters, Vec::new());
        let portal = pgwire::api::portal::Portal::try_new(&bound, Arc::new(statement))?;
        let needed: Vec<Option<&DataType>> = self
            .needed
            .iter()
            .map(|needed| needed.as_ref().filter(|needed| **needed != DataType::Null))
            .collect();
        let types: Vec<Type> = self.types.iter().map(readable).collect();
        let types: Vec<Option<&Type>> = types.iter().map(Some).collect();
        Ok(Some(deserialize_parameters_with_server_types(&portal, &needed, &types)?))
    }
}

/// The type by which values of a type are read, which are written alike.
fn readable(declared: &Type) -> Type {
    match *declared {
        Type::OID_ARRAY => Type::INT4_ARRAY,
        _ => declared.clone(),
    }
}

/// The type of values that a client sends as `told`.
fn arrow_type(declared: &Type) -> DataType {
    match *declared {
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4 | Type::OID => DataType::Int32,
        Type::INT8 => DataType::Int64,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        Type::NUMERIC => DataType::Decimal128(38, 10),
        Type::DATE => DataType::Date32,
        Type::TIMESTAMP | Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::BYTEA => DataType::Binary,
        _ => DataType::Utf8,
    }
}

/// The type of a parameter that is cast (`$1::date`) or a limit (`LIMIT $1`), which DataFusion leaves open.
fn cast_or_limit(plan: &LogicalPlan, name: &str) -> Result<Option<DataType>, SqlError> {
    let is_wanted = |expr: &Expr| matches!(expr, Expr::Placeholder(placeholder) if placeholder.id == name);
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        let is_limit = matches!(node, LogicalPlan::Limit(_));
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::Cast(cast) if is_wanted(&cast.expr) => {
                        let data_type = cast.field.data_type();
                        found = into_pg_type(data_type).is_ok().then(|| data_type.clone());
                    }
                    expr if is_limit && is_wanted(expr) => found = Some(DataType::Int64),
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// The type of a parameter that is searched for a value (`column = ANY($1)`), which DataFusion leaves open.
fn list_type(plan: &LogicalPlan, name: &str) -> Result<Option<DataType>, SqlError> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        let mut schema = DFSchema::empty();
        for input in node.inputs() {
            schema.merge(input.schema());
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(call) = expr
                    && call.func.name() == "array_has"
                    && let [Expr::Placeholder(Placeholder { id, .. }), value] = call.args.as_slice()
                    && id == name
                {
                    let item = Field::new_list_field(value.get_type(&schema)?, true);
                    found = Some(DataType::List(Arc::new(item)));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}
