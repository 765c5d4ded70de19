//! A session: one connection's view of a tenant's tables, its settings, and the queries it runs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session as CatalogSession;
use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::{Result, extensions_options};
use datafusion::execution::context::{QueryPlanner, SessionContext};
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner as _};
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::{DFParser, Statement};

use crate::exec::Planner;
use crate::lift::Lift;
use crate::query::{Limits, Query};
use crate::runner::Runner;
use crate::{function, options, prompt};

extensions_options! {
    /// Settings of AI functions: `SET relserve.max_tokens = 100000`.
    pub struct Settings {
        /// Tokens that a query may compute, prompts and answers; 0: any number.
        pub max_tokens: u64, default = 0
        /// Answers known already are given, nothing is computed.
        pub cached_only: bool, default = false
        /// Rows of an AI operator that are undecided at a time.
        pub window_rows: u64, default = 2_000
    }
}

impl ConfigExtension for Settings {
    const PREFIX: &'static str = "relserve";
}

impl Settings {
    fn limits(&self) -> Limits {
        Limits {
            window_rows: usize::try_from(self.window_rows).unwrap_or(usize::MAX),
            max_tokens: self.max_tokens,
            cached_only: self.cached_only,
        }
    }
}

/// Plans AI operators beside those of DataFusion.
#[derive(Debug)]
struct AiQueryPlanner;

#[async_trait]
impl QueryPlanner for AiQueryPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn CatalogSession,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Planner)]);
        planner.create_physical_plan(plan, session).await
    }
}

/// A session.
pub struct Session {
    context: SessionContext,
    runner: Arc<dyn Runner>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Session").field("runner", &self.runner).finish_non_exhaustive()
    }
}

/// A query that runs: dropping its stream ends it.
pub struct Running {
    pub stream: SendableRecordBatchStream,
    /// What it does and has done.
    pub query: Arc<Query>,
    /// Its plan, with metrics.
    pub plan: Arc<dyn ExecutionPlan>,
}

impl Session {
    /// A session without tables.
    pub fn new(runner: Arc<dyn Runner>) -> Self {
        let mut settings = ConfigOptions::new();
        settings.extensions.insert(Settings::default());
        // Names are folded as Postgres does, and types are those that its clients know.
        settings.sql_parser.dialect = datafusion::common::config::Dialect::PostgreSQL;
        settings.sql_parser.map_string_types_to_utf8view = false;
        settings.execution.parquet.schema_force_view_types = false;
        let config = SessionConfig::from(settings).with_information_schema(true);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features()
            .with_query_planner(Arc::new(AiQueryPlanner))
            .with_analyzer_rule(Arc::new(Lift::default()))
            .build();
        let context = SessionContext::new_with_state(state);
        for function in function::markers() {
            context.register_udf(function);
        }
        context.register_udf(prompt::function());
        context.register_udf(options::function());
        Self { context, runner }
    }

    /// DataFusion's side of the session: its catalogue and functions.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Reads statements.
    pub fn parse(&self, text: &str) -> Result<Vec<Statement>> {
        let dialect = datafusion::sql::sqlparser::dialect::PostgreSqlDialect {};
        let statements = DFParser::parse_sql_with_dialect(text, &dialect)?;
        Ok(statements.into_iter().map(named).collect())
    }

    /// Plans a statement, unoptimised.
    pub async fn plan(&self, statement: Statement) -> Result<LogicalPlan> {
        self.context.state().statement_to_plan(named(statement)).await
    }

    /// Starts a plan. Statements that change the session (`SET`, `CREATE VIEW`) are done when this returns.
    pub async fn run(&self, plan: LogicalPlan, text: &str) -> Result<Running> {
        let frame = self.context.execute_logical_plan(plan).await?;
        let (state, plan) = frame.into_parts();
        let settings = state.config_options().extensions.get::<Settings>().cloned().unwrap_or_default();
        let query = Query::new(Arc::clone(&self.runner), settings.limits(), text);
        let config = state.config().clone().with_extension(Arc::clone(&query));
        let physical = state.create_physical_plan(&plan).await?;
        let task = TaskContext::from(&state).with_session_config(config);
        let stream = execute_stream(Arc::clone(&physical), Arc::new(task))?;
        Ok(Running { stream, query, plan: physical })
    }

    /// Plans and starts one statement.
    pub async fn query(&self, text: &str) -> Result<Running> {
        let mut statements = self.parse(text)?;
        let Some(statement) = statements.pop().filter(|_| statements.is_empty()) else {
            return datafusion::common::plan_err!("one statement at a time");
        };
        let plan = self.plan(statement).await?;
        self.run(plan, text).await
    }
}

/// Options of AI functions by name, in whatever kind of statement.
fn named(mut statement: Statement) -> Statement {
    match &mut statement {
        Statement::Statement(statement) => options::name_options(statement),
        Statement::Explain(explain) => {
            let inner = std::mem::replace(&mut *explain.statement, Statement::Reset(empty_reset()));
            *explain.statement = named(inner);
        }
        _ => {}
    }
    statement
}

fn empty_reset() -> datafusion::sql::parser::ResetStatement {
    datafusion::sql::parser::ResetStatement::Variable(datafusion::sql::sqlparser::ast::ObjectName(Vec::new()))
}
