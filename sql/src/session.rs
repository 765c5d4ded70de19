//! A session: one connection's view of a tenant's tables, its settings, and the queries it runs.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::Session as CatalogSession;
use datafusion::common::config::{ConfigExtension as _, ConfigOptions};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::ViewTable;
use datafusion::execution::context::{QueryPlanner, SessionContext};
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{DdlStatement, LogicalPlan, LogicalPlanBuilder, Statement as PlanStatement};
use datafusion::optimizer::AnalyzerRule as _;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner as _};
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;

use crate::access::SessionAccess;
use crate::budget::TenantBudget;
use crate::complexity::{self, OnALargeStack, on_a_large_stack};
use crate::error_text::reason;
use crate::exec::{Planner, estimates, has_calls, named_models};
use crate::lift::{JoinSubqueries, Lift};
use crate::place::{LimitRankings, PlaceFilters};
use crate::prune::PruneCalls;
use crate::query::Query;
use crate::read_ahead::read_ahead;
use crate::registry::Registry;
use crate::runner::Runner;
use crate::scans::{self, ScanningTool};
use crate::settings::AiSettings;
use crate::tables::TenantTables;
use crate::{aggregate, arrays, clauses, function, names, options, prompt, settings, tables, texts};

/// Plans AI operators beside those of DataFusion.
#[derive(Debug)]
struct AiQueryPlanner;

/// As `async_trait` would write it, but that the future is made elsewhere: see [`planned`].
impl QueryPlanner for AiQueryPlanner {
    fn create_physical_plan<'s, 'p, 'c, 'f>(
        &'s self,
        plan: &'p LogicalPlan,
        session: &'c dyn CatalogSession,
    ) -> BoxFuture<'f, Result<Arc<dyn ExecutionPlan>>>
    where
        's: 'f,
        'p: 'f,
        'c: 'f,
        Self: 'f,
    {
        planned(plan, session)
    }
}

/// The compiler proves that a future can be sent from everything in it, and remembers nothing of that where lifetimes are
/// compared, as in the method above: plans and expressions by themselves take it seconds.
fn planned<'a>(
    plan: &'a LogicalPlan,
    session: &'a dyn CatalogSession,
) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
    Box::pin(async move {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Planner)]);
        planner.create_physical_plan(plan, session).await
    })
}

/// The schema of the tables about queries.
const SCHEMA: &str = "relserve";

/// What a tenant's sessions may compute, and for whom.
#[derive(Clone, Debug, Default)]
pub struct SessionPolicy {
    pub budget: Arc<TenantBudget>,
    /// Tools whose own scans get known answers only.
    pub scans: Vec<ScanningTool>,
    pub access: SessionAccess,
}

/// A session.
pub struct Session {
    context: SessionContext,
    runner: Arc<dyn Runner>,
    registry: Arc<Registry>,
    policy: SessionPolicy,
    /// What `RESET` gives back.
    initial: AiSettings,
    /// What the client calls itself.
    application: Mutex<String>,
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
    /// A session whose only tables are those about its tenant's queries.
    pub fn new(runner: Arc<dyn Runner>, registry: Arc<Registry>) -> Self {
        let mut settings = ConfigOptions::new();
        settings.extensions.insert(AiSettings::default());
        // Names are folded as Postgres does, and types are those that its clients know.
        settings.sql_parser.dialect = datafusion::common::config::Dialect::PostgreSQL;
        settings.sql_parser.map_string_types_to_utf8view = false;
        settings.execution.parquet.schema_force_view_types = false;
        let config = SessionConfig::from(settings).with_information_schema(true);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features()
            .with_query_planner(Arc::new(AiQueryPlanner))
            .with_analyzer_rule(Arc::new(arrays::TextToArray))
            .with_analyzer_rule(Arc::new(JoinSubqueries))
            .with_analyzer_rule(Arc::new(Lift::default()))
            .with_optimizer_rule(Arc::new(PruneCalls))
            .with_optimizer_rule(Arc::new(PlaceFilters))
            .with_optimizer_rule(Arc::new(LimitRankings))
            .build();
        let context = SessionContext::new_with_state(state);
        for function in function::markers() {
            context.register_udf(function);
        }
        for function in aggregate::markers() {
            context.register_udaf(function);
        }
        context.register_udf(prompt::function());
        context.register_udf(options::function());
        texts::bound(&context);
        if let Some(catalog) = context.catalog(&catalog_of(&context)) {
            // A new session has no schema of this name.
            let _ = catalog.register_schema(SCHEMA, registry.schema());
        }
        let (policy, initial) = (SessionPolicy::default(), AiSettings::default());
        Self { context, runner, registry, policy, initial, application: Mutex::default() }
    }

    /// The same under a policy.
    pub fn with_policy(self, policy: SessionPolicy) -> Self {
        Self { policy, ..self }
    }

    /// Makes the settings of AI functions of now those that `RESET` returns to.
    pub(crate) fn keep_as_initial(&mut self) {
        let state = self.context.state();
        self.initial = state.config_options().extensions.get::<AiSettings>().cloned().unwrap_or_default();
    }

    /// Notes what the client calls itself (`application_name`), by which its own scans are known.
    pub fn set_application(&self, name: &str) {
        name.clone_into(&mut self.application.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Sets a setting, as `SET name = 'value'` does.
    pub async fn set(&self, name: &str, value: &str) -> Result<()> {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "._".contains(letter);
        if name.is_empty() || !name.chars().all(is_name) {
            return datafusion::common::plan_err!("must be a setting's name: letters, digits, `_` and `.`");
        }
        self.query(&format!("SET {name} = '{}'", value.replace('\'', "''"))).await.map(drop)
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

    /// Whether a text only reads tables, so that running it again changes nothing.
    pub fn only_reads(&self, text: &str) -> Result<bool> {
        let is_query = |statement: &Statement| match statement {
            Statement::Statement(statement) => matches!(**statement, ast::Statement::Query(_)),
            Statement::Explain(_) => true,
            _ => false,
        };
        Ok(self.parse(text)?.iter().all(is_query))
    }

    /// Whether nothing is changed through it, whatever is asked.
    pub fn only_reads_tables(&self) -> bool {
        self.policy.access.only_reads()
    }

    /// Plans a statement, unoptimised, that the session may run.
    pub async fn plan(&self, statement: Statement) -> Result<LogicalPlan> {
        let access = &self.policy.access;
        let plan = self.plan_as(settings::default_as_reset(statement), access).await?;
        access.check_plan(&plan)?;
        Ok(plan)
    }

    /// Plans a statement for whoever may this.
    async fn plan_as(&self, statement: Statement, access: &SessionAccess) -> Result<LogicalPlan> {
        clauses::check(&statement)?;
        tables::refresh_for(&self.context, &statement).await?;
        let mut views = ViewsAnew::default();
        views.path.extend(made_view(&statement));
        if !is_about_names(&statement) {
            self.renew_views(&statement, &mut views).await?;
        }
        let mut statement = named(statement);
        tables::temporary::resolve(&self.context, &mut statement);
        access.check(&self.context, &statement)?;
        self.plan_now(statement).await
    }

    /// Plans a statement over the views as they are. Temporary tables are looked at by the name of their schema
    /// alone: a view is every session's.
    async fn plan_now(&self, statement: Statement) -> Result<LogicalPlan> {
        let mut statement = named(statement);
        names::find(&self.context, &mut statement).await?;
        prompt::expand(self.context.state().statement_to_plan(statement).await?)
    }

    /// Plans the views that a statement reads anew, so that they read the tables of now: a file may have other
    /// columns since, a table may be gone, a view below may be another.
    ///
    /// # Errors
    /// Where a view cannot be planned any more, or reads itself.
    async fn renew_views(&self, statement: &Statement, views: &mut ViewsAnew) -> Result<()> {
        let state = self.context.state();
        let Some(tables) = state.config().get_extension::<TenantTables>() else { return Ok(()) };
        let defaults = &state.config_options().catalog;
        for table in state.resolve_table_references(statement)? {
            let name = table.table();
            let is_own = table.schema().is_none_or(|schema| schema == defaults.default_schema);
            let Some(text) = is_own.then(|| tables.view(name)).flatten() else { continue };
            if views.path.iter().any(|on| on == name) {
                return datafusion::common::plan_err!("view `{name}` reads itself");
            }
            if !views.done.insert(name.to_owned()) {
                continue;
            }
            views.path.push(name.to_owned());
            Box::pin(self.renew_view(&tables, name, &text, views)).await.map_err(|error| {
                let reason = reason(&error);
                datafusion::common::plan_datafusion_err!("`{name}` cannot be made again: {reason}")
            })?;
            views.path.pop();
        }
        Ok(())
    }

    async fn renew_view(
        &self,
        tables: &TenantTables,
        name: &str,
        text: &str,
        views: &mut ViewsAnew,
    ) -> Result<()> {
        let mut statements = self.parse(text)?;
        let Some(statement) = statements.pop().filter(|_| statements.is_empty()) else {
            return datafusion::common::plan_err!("it is not one statement");
        };
        if matches!(statement, Statement::CreateExternalTable(_)) {
            // The next session tries it again; until then its name says why it is not there.
            return Ok(());
        }
        if made_view(&statement).is_none() {
            return datafusion::common::plan_err!("it makes neither a view nor an external table");
        }
        self.renew_views(&statement, views).await?;
        if let LogicalPlan::Ddl(DdlStatement::CreateView(view)) = self.plan_now(statement).await? {
            let state = self.context.state();
            let plan = Arc::unwrap_or_clone(view.input);
            let plan = TypeCoercion::new().analyze(plan, state.config_options())?;
            tables.put_view(name, ViewTable::new(plan, view.definition));
        }
        Ok(())
    }

    /// Starts a plan. Statements that change the session (`SET`, `CREATE VIEW`) are done when this returns.
    pub async fn run(&self, mut plan: LogicalPlan, text: &str) -> Result<Running> {
        let explained = match &plan {
            LogicalPlan::Explain(explain) => Some(Arc::clone(&explain.plan)),
            _ => None,
        };
        let mut set_value = None;
        if let LogicalPlan::Statement(PlanStatement::SetVariable(set)) = &mut plan {
            *set = settings::checked(set)?;
            set_value = Some((set.variable.clone(), set.value.clone()));
            if set.variable.eq_ignore_ascii_case(AiSettings::MODEL) {
                self.model(&set.value)?;
            }
        }
        let plan = match &plan {
            LogicalPlan::Statement(PlanStatement::ResetVariable(reset)) => {
                let is_done = self.reset(&reset.variable)?;
                if is_done { LogicalPlanBuilder::empty(false).build()? } else { plan }
            }
            _ => plan,
        };
        let frame = tables::statement::execute(&self.context, plan, text).await;
        let frame = frame.map_err(|error| match &set_value {
            // Those of planning are ours.
            Some((variable, value)) if !matches!(error.find_root(), DataFusionError::Plan(_)) => {
                settings::refused(self.context.state().config_options(), variable, value)
            }
            _ => error,
        })?;
        let (state, plan) = frame.into_parts();
        let settings = state.config_options().extensions.get::<AiSettings>().cloned().unwrap_or_default();
        let physical = state.create_physical_plan(&plan).await?;
        let explained = match explained {
            Some(inner) => Some(state.create_physical_plan(&inner).await?),
            None => None,
        };
        for name in named_models(explained.as_ref().unwrap_or(&physical)) {
            self.model(&name)?;
        }
        let model = settings.model().map(|name| self.model(name)).transpose()?;
        let mut limits = settings.limits(|| self.scanning_tool(&physical, text))?;
        limits.cached_only |= self.policy.access.is_read_only;
        let budget = Arc::clone(&self.policy.budget);
        let query = Query::new(Arc::clone(&self.runner), limits, budget, text);
        let query = Arc::new(query.with_model(model));
        let config = state.config().clone().with_extension(Arc::clone(&query));
        let task = TaskContext::from(&state).with_session_config(config);
        self.registry.add(&query);
        let ends = Ends(Arc::clone(&query));
        let task = Arc::new(task);
        let stream = execute_stream(Arc::clone(&physical), Arc::clone(&task))?;
        let stream = match explained {
            Some(inner) => {
                let lines = estimates(&inner, &query, &task).await?;
                with_estimates(stream, &lines)?
            }
            None => stream,
        };
        let schema = stream.schema();
        let stream = stream.inspect(move |_| {
            let _held = &ends;
        });
        let stream = read_ahead(Box::pin(RecordBatchStreamAdapter::new(schema, stream)));
        Ok(Running { stream, query, plan: physical })
    }

    /// Makes the views and external tables again that an earlier run of the server had. Those that cannot be
    /// made, because a table is gone or a database away, say so where a statement names them.
    ///
    /// # Errors
    /// Where they cannot be read at all.
    pub async fn restore_views(&self) -> Result<()> {
        let tables = self.context.state_ref().read().config().get_extension::<TenantTables>();
        let Some(tables) = tables else { return Ok(()) };
        let mut restoring = tables.restore().await?;
        // One may read another that comes later in the order of names.
        loop {
            let before = restoring.left();
            for (name, text) in restoring.take() {
                let made = self.restored(&name, &text).await;
                restoring.tell(name, text, made);
            }
            if restoring.left() == 0 || restoring.left() == before {
                return Ok(());
            }
        }
    }

    async fn restored(&self, name: &str, text: &str) -> Result<()> {
        let mut statements = self.parse(text)?;
        let Some(statement) = statements.pop().filter(|_| statements.is_empty()) else {
            return datafusion::common::plan_err!("it is not one statement");
        };
        // Not this session's alone.
        let mut plan = self.plan_as(statement, &SessionAccess::default()).await?;
        match &mut plan {
            LogicalPlan::Ddl(DdlStatement::CreateView(view)) => view.name = name.into(),
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(table)) => table.name = name.into(),
            _ => return datafusion::common::plan_err!("it makes neither a view nor an external table"),
        }
        self.context.execute_logical_plan(plan).await.map(drop)
    }

    /// Resets a setting of AI functions; false where the setting is another's.
    fn reset(&self, variable: &str) -> Result<bool> {
        let variable = variable.to_ascii_lowercase();
        let Some(name) = variable.strip_prefix(AiSettings::PREFIX).and_then(|name| name.strip_prefix('.'))
        else {
            return Ok(false);
        };
        let state = self.context.state_ref();
        let mut state = state.write();
        let settings = state.config_mut().options_mut().extensions.get_mut::<AiSettings>();
        settings.map_or(Ok(true), |settings| settings.reset(name, &self.initial).map(|()| true))
    }

    /// The name of the model that is called so.
    ///
    /// # Errors
    /// Where none is, with those that are served.
    fn model(&self, name: &str) -> Result<String> {
        self.runner.model(name).map_err(|error| datafusion::common::plan_datafusion_err!("{error}"))
    }

    /// The tool that makes such a statement by itself, where the statement would ask a model.
    fn scanning_tool(&self, plan: &Arc<dyn ExecutionPlan>, text: &str) -> Option<ScanningTool> {
        let application = self.application.lock().unwrap_or_else(PoisonError::into_inner);
        has_calls(plan).then(|| scans::tool_of(&self.policy.scans, &application, text)).flatten()
    }

    /// Plans and starts one statement.
    pub async fn query(&self, text: &str) -> Result<Running> {
        complexity::check_text(text).map_err(|error| DataFusionError::Plan(error.to_string()))?;
        let started = on_a_large_stack(async {
            let mut statements = self.parse(text)?;
            let Some(statement) = statements.pop().filter(|_| statements.is_empty()) else {
                return datafusion::common::plan_err!("one statement at a time");
            };
            let plan = self.plan(statement).await?;
            self.run(plan, text).await
        });
        let Running { stream, query, plan } = started.await?;
        Ok(Running { stream: Box::pin(OnALargeStack(stream)), query, plan })
    }
}

/// Puts what calls would cost after a plan; a plan that is not shown as rows of a type and a text stays as it
/// is.
fn with_estimates(plan: SendableRecordBatchStream, lines: &[String]) -> Result<SendableRecordBatchStream> {
    let schema = plan.schema();
    let is_table = schema.fields().len() == 2
        && schema.fields().iter().all(|field| *field.data_type() == DataType::Utf8);
    if lines.is_empty() || !is_table {
        return Ok(plan);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["ai_estimate"; lines.len()])),
        Arc::new(StringArray::from(lines.to_vec())),
    ];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    let stream = plan.chain(futures_util::stream::iter([Ok(batch)]));
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
}

/// Views that are planned anew for a statement.
#[derive(Debug, Default)]
struct ViewsAnew {
    /// Those that are, and those that they are for.
    path: Vec<String>,
    done: HashSet<String>,
}

/// Whether a statement is about tables and reads none: a view that cannot be planned is dropped all the same.
fn is_about_names(statement: &Statement) -> bool {
    let Statement::Statement(statement) = statement else { return false };
    matches!(**statement, ast::Statement::Drop { .. } | ast::Statement::AlterTable(_))
}

/// The view that a statement makes.
fn made_view(statement: &Statement) -> Option<String> {
    match statement {
        Statement::Statement(statement) => match &**statement {
            ast::Statement::CreateView(create) => Some(create.name.0.last()?.as_ident()?.value.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Notes the end of a query when its stream is dropped.
struct Ends(Arc<Query>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.progress.end();
    }
}

fn catalog_of(context: &SessionContext) -> String {
    context.state().config_options().catalog.default_catalog.clone()
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
    datafusion::sql::parser::ResetStatement::Variable(ast::ObjectName(Vec::new()))
}
