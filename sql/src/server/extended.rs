//! The extended protocol: statements that are prepared once, bound to parameters, and run in parts.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery as message;
use pgwire::messages::response::EmptyQueryResponse;
use postgres_types::Type;
use tokio::io::AsyncWrite;

use super::answer::{complete, deliver, tag};
use super::backend::{self, Backend, Outcome, limit};
use super::command::{self, SessionCommand};
use super::error::{SqlError, Stop, code};
use super::frontend::{Bind, Target};
use super::names;
use super::prepared::{Parameters, Portal, PortalState, Prepared};
use super::rows::{self, Columns};
use super::split::split;
use super::transport::ServerOutput;

impl Backend {
    /// Prepares a statement.
    pub(super) async fn parse<S: AsyncWrite>(
        &mut self,
        name: String,
        text: String,
        types: &[u32],
        output: &mut ServerOutput<S>,
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
            SessionCommand::Query(statement) => {
                let planned = self.plan(statement).await?;
                backend::check_files(&planned)?;
                parameters.resolve(&planned)?;
                parameters.note_numbers(statement);
                if backend::tag(&planned).is_none() {
                    columns = Some(parameters.columns(&planned, names::of(statement).as_deref())?);
                }
                plan = Some(planned);
            }
            SessionCommand::Show(name) => columns = Some(text_columns(&[name])?),
            SessionCommand::ShowAll => columns = Some(text_columns(&["name", "setting", "description"])?),
            SessionCommand::Fetch { name, .. } => columns = self.cursor_columns(name),
            _ => {}
        }
        Ok(Prepared { text: piece.written.to_owned(), command: Some(command), plan, parameters, columns })
    }

    fn prepared(&self, name: &str) -> Result<&Arc<Prepared>, SqlError> {
        self.statements.get(name).ok_or_else(|| {
            SqlError::new(code::UNKNOWN_STATEMENT, format!("prepared statement \"{name}\" does not exist"))
        })
    }

    /// Binds a prepared statement to parameters.
    pub(super) fn bind<S: AsyncWrite>(
        &mut self,
        bind: Bind,
        output: &mut ServerOutput<S>,
    ) -> Result<(), Stop> {
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
        output: &mut ServerOutput<S>,
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
                let Some(portal) = self.portals.get(name) else {
                    // A cursor of DECLARE is a portal too: psycopg asks for its columns.
                    let columns = self.cursor_columns(name).ok_or_else(|| no_portal(name))?;
                    return Ok(output.put(rows::describe(&columns.fields(&[])?))?);
                };
                (&portal.statement, &portal.formats)
            }
        };
        match &statement.columns {
            None => output.put(PgWireBackendMessage::NoData(NoData::new()))?,
            Some(columns) => output.put(rows::describe(&columns.fields(formats)?))?,
        }
        Ok(())
    }

    /// Runs a portal, or goes on with it.
    pub(super) async fn execute<S: AsyncWrite>(
        &mut self,
        name: String,
        rows_max: usize,
        output: &mut ServerOutput<S>,
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
                    complete(output, tag(word, sent))?;
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
        output: &mut ServerOutput<S>,
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
    let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
    Columns::new(&Schema::new(fields), None)
}
