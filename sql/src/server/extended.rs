//! The extended protocol: statements that are prepared once, bound to parameters, and run in parts.

use std::sync::Arc;

use arrow_pg::datatypes::df::deserialize_parameters_with_server_types;
use arrow_pg::datatypes::into_pg_type;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use pgwire::api::stmt::StoredStatement;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery as message;
use pgwire::messages::response::EmptyQueryResponse;
use postgres_types::Type;
use tokio::io::AsyncWrite;

use super::answer::{complete, deliver};
use super::backend::{self, Backend, Outcome, limit};
use super::command::{self, Command};
use super::error::{SqlError, Stop, code};
use super::frontend::{Bind, Target};
use super::names;
use super::rows::{self, Columns, Rows};
use super::split::split;
use super::transport::Output;

/// A prepared statement.
#[derive(Debug)]
pub(super) struct Prepared {
    text: String,
    /// None: a text without a statement.
    command: Option<Command>,
    plan: Option<LogicalPlan>,
    parameters: Parameters,
    /// None: it gives no rows.
    columns: Option<Columns>,
}

/// Types of a statement's parameters.
#[derive(Debug, Default)]
struct Parameters {
    /// What the client said.
    hints: Vec<Option<Type>>,
    /// What the plan needs.
    needed: Vec<Option<DataType>>,
    /// What the client is told.
    types: Vec<Type>,
}

/// A statement with its parameters, and what is left of its rows.
pub(super) struct Portal {
    statement: Arc<Prepared>,
    values: Option<ParamValues>,
    formats: Vec<i16>,
    state: PortalState,
}

enum PortalState {
    Bound,
    Open { rows: Rows, word: &'static str },
    Done,
}

/// Parameters of a statement at most, as many as the protocol can count.
const PARAMETERS_MAX: usize = 65_535;

impl Backend {
    /// Prepares a statement.
    pub(super) async fn parse<S: AsyncWrite>(
        &mut self,
        name: String,
        text: String,
        types: &[u32],
        output: &mut Output<S>,
    ) -> Result<(), Stop> {
        if !name.is_empty() {
            if self.statements.contains_key(&name) {
                let message = format!("prepared statement \"{name}\" already exists");
                return Err(SqlError::new(code::DUPLICATE_STATEMENT, message).into());
            }
            limit("number of prepared statements", self.statements.len(), self.limits.statements_max)?;
        }
        let prepared = self.prepare(text, types).await?;
        self.statements.insert(name, Arc::new(prepared));
        Ok(output.put(PgWireBackendMessage::ParseComplete(message::ParseComplete::new()))?)
    }

    async fn prepare(&mut self, text: String, types: &[u32]) -> Result<Prepared, SqlError> {
        if text.len() > self.limits.statement_bytes_max {
            return Err(SqlError::limit("length of a statement in bytes", self.limits.statement_bytes_max));
        }
        let pieces = split(&text)?;
        let piece = match pieces.as_slice() {
            [] => {
                let parameters = Parameters::default();
                return Ok(Prepared {
                    text: String::new(),
                    command: None,
                    plan: None,
                    parameters,
                    columns: None,
                });
            }
            [piece] => piece,
            _ => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(SqlError::new(code::SYNTAX, message));
            }
        };
        let command = command::parse(&self.session, piece)?;
        self.check_transaction(&command)?;
        let hints: Vec<Option<Type>> =
            types.iter().map(|oid| Type::from_oid(*oid).filter(|hint| *hint != Type::UNKNOWN)).collect();
        let mut parameters = Parameters { hints, ..Parameters::default() };
        let (mut plan, mut columns) = (None, None);
        match &command {
            Command::Query(statement) => {
                let planned = self.plan(statement).await?;
                backend::check_files(&planned)?;
                parameters.resolve(&planned)?;
                if backend::tag(&planned).is_none() {
                    columns = Some(parameters.columns(&planned, names::of(statement).as_deref())?);
                }
                plan = Some(planned);
            }
            Command::Show(name) => columns = Some(text_columns(&[name])?),
            Command::ShowAll => columns = Some(text_columns(&["name", "setting", "description"])?),
            Command::Fetch { name, .. } => columns = self.cursor_columns(name),
            _ => {}
        }
        Ok(Prepared { text: piece.text.to_owned(), command: Some(command), plan, parameters, columns })
    }

    fn prepared(&self, name: &str) -> Result<&Arc<Prepared>, SqlError> {
        self.statements.get(name).ok_or_else(|| {
            SqlError::new(code::UNKNOWN_STATEMENT, format!("prepared statement \"{name}\" does not exist"))
        })
    }

    /// Binds a prepared statement to parameters.
    pub(super) fn bind<S: AsyncWrite>(&mut self, bind: Bind, output: &mut Output<S>) -> Result<(), Stop> {
        let statement = Arc::clone(self.prepared(&bind.statement)?);
        let name = bind.portal.clone();
        if !name.is_empty() {
            if self.portals.contains_key(&name) {
                let message = format!("cursor \"{name}\" already exists");
                return Err(SqlError::new(code::DUPLICATE_CURSOR, message).into());
            }
            limit("number of portals", self.portals.len(), self.limits.portals_max)?;
        }
        if let Some(columns) = &statement.columns {
            // Wrong formats are an error before anything runs.
            columns.fields(&bind.result_formats)?;
        }
        let formats = bind.result_formats.clone();
        let values = statement.parameters.values(bind)?;
        self.portals.insert(name, Portal { statement, values, formats, state: PortalState::Bound });
        Ok(output.put(PgWireBackendMessage::BindComplete(message::BindComplete::new()))?)
    }

    /// Describes the parameters and columns of a statement, or the columns of a portal.
    pub(super) fn describe<S: AsyncWrite>(
        &self,
        target: Target,
        name: &str,
        output: &mut Output<S>,
    ) -> Result<(), Stop> {
        let (statement, formats): (_, &[i16]) = match target {
            Target::Statement => {
                let statement = self.prepared(name)?;
                let types = statement.parameters.types.iter().map(Type::oid).collect();
                let description = ParameterDescription::new(types);
                output.put(PgWireBackendMessage::ParameterDescription(description))?;
                (statement, &[])
            }
            Target::Portal => {
                let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
                (&portal.statement, &portal.formats)
            }
        };
        Ok(match &statement.columns {
            None => output.put(PgWireBackendMessage::NoData(NoData::new()))?,
            Some(columns) => output.put(rows::describe(&columns.fields(formats)?))?,
        })
    }

    /// Runs a portal, or goes on with it.
    pub(super) async fn execute<S: AsyncWrite>(
        &mut self,
        name: String,
        rows_max: usize,
        output: &mut Output<S>,
    ) -> Result<(), Stop> {
        // Taken out: should the client give up in the middle, the query ends with the portal.
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let state = std::mem::replace(&mut portal.state, PortalState::Done);
        let outcome = match state {
            PortalState::Bound => match self.start(&mut portal).await? {
                None => {
                    output.put(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()))?;
                    self.portals.insert(name, portal);
                    return Ok(());
                }
                Some(outcome) => outcome,
            },
            PortalState::Open { rows, word } => Outcome::Rows { rows, word },
            PortalState::Done => {
                complete(output, "SELECT 0".to_owned())?;
                self.portals.insert(name, portal);
                return Ok(());
            }
        };
        match outcome {
            Outcome::Rows { mut rows, word } if rows_max > 0 => {
                let fields = rows.columns.fields(&portal.formats)?;
                let sent = rows::send(&mut rows, &fields, rows_max, output).await?;
                rows.notice(output)?;
                if sent == rows_max {
                    output.put(PgWireBackendMessage::PortalSuspended(message::PortalSuspended::new()))?;
                    portal.state = PortalState::Open { rows, word };
                } else {
                    complete(output, format!("{word} {sent}"))?;
                }
            }
            outcome => deliver(self, outcome, Some(&portal.formats), output).await?,
        }
        self.portals.insert(name, portal);
        Ok(())
    }

    async fn start(&mut self, portal: &mut Portal) -> Result<Option<Outcome>, SqlError> {
        let statement = Arc::clone(&portal.statement);
        let Some(command) = &statement.command else { return Ok(None) };
        self.check_transaction(command)?;
        let Some(plan) = &statement.plan else { return self.run(command, &statement.text).await.map(Some) };
        let mut plan = plan.clone();
        if let Some(values) = portal.values.take() {
            plan = plan.with_param_values(values)?;
        }
        self.run_plan(plan, &statement.text, statement.columns.clone(), None).await.map(Some)
    }

    /// Forgets a statement or portal; one that is not there is forgotten already.
    pub(super) fn close<S: AsyncWrite>(
        &mut self,
        target: Target,
        name: &str,
        output: &mut Output<S>,
    ) -> Result<(), Stop> {
        match target {
            Target::Statement => drop(self.statements.remove(name)),
            Target::Portal => drop(self.portals.remove(name)),
        }
        Ok(output.put(PgWireBackendMessage::CloseComplete(message::CloseComplete::new()))?)
    }
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(code::INVALID_CURSOR, format!("portal \"{name}\" does not exist"))
}

fn text_columns(names: &[&str]) -> Result<Columns, SqlError> {
    use datafusion::arrow::datatypes::{Field, Schema};
    let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
    Columns::new(&Schema::new(fields), None)
}

impl Parameters {
    /// Finds out what types a plan's parameters have, and what the client is told of them.
    fn resolve(&mut self, plan: &LogicalPlan) -> Result<(), SqlError> {
        for (name, needed) in plan.get_parameter_types()? {
            let place =
                name.trim_start_matches('$').parse::<usize>().ok().and_then(|place| place.checked_sub(1));
            let Some(place) = place.filter(|place| *place < PARAMETERS_MAX) else {
                return Err(SqlError::new(code::SYNTAX, format!("there is no parameter {name}")));
            };
            if self.needed.len() <= place {
                self.needed.resize(place + 1, None);
            }
            self.needed[place] = needed;
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

    /// The columns of a plan whose parameters have these types.
    fn columns(&self, plan: &LogicalPlan, names: Option<&[String]>) -> Result<Columns, SqlError> {
        if self.types.is_empty() {
            return Columns::new(plan.schema().as_arrow(), names);
        }
        let nulls = self.types.iter().zip(&self.needed).map(|(told, needed)| {
            let data_type = match needed {
                Some(needed) if *needed != DataType::Null => needed.clone(),
                _ => arrow_type(told),
            };
            ScalarValue::try_from(&data_type).unwrap_or(ScalarValue::Utf8(None))
        });
        let values = ParamValues::from(nulls.collect::<Vec<_>>());
        // A plan that takes no NULL has the columns that it had.
        let filled = plan.clone().with_param_values(values);
        Columns::new(filled.as_ref().unwrap_or(plan).schema().as_arrow(), names)
    }

    /// Reads the values of a `Bind`; `None` where the statement has no parameters.
    fn values(&self, bind: Bind) -> Result<Option<ParamValues>, SqlError> {
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
        let statement = StoredStatement::new(String::new(), (), self.hints.clone());
        let bound = message::Bind::new(None, None, bind.parameter_formats, bind.parameters, Vec::new());
        let portal = pgwire::api::portal::Portal::try_new(&bound, Arc::new(statement))?;
        let needed: Vec<Option<&DataType>> = self
            .needed
            .iter()
            .map(|needed| needed.as_ref().filter(|needed| **needed != DataType::Null))
            .collect();
        let types: Vec<Option<&Type>> = self.types.iter().map(Some).collect();
        Ok(Some(deserialize_parameters_with_server_types(&portal, &needed, &types)?))
    }
}

/// The type of values that a client sends as `told`.
fn arrow_type(told: &Type) -> DataType {
    match *told {
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
