//! The tables of `pg_catalog` and `information_schema`: those of the crates below, with their columns mended,
//! and those that they lack.
//!
//! Tables here have no indexes, constraints, triggers, defaults or sequences: what Postgres keeps of those is
//! empty ([`is_empty`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, new_null_array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::datasource::ViewTable;
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::prelude::{Expr, ident};
use datafusion_pg_catalog::pg_catalog::PG_CATALOG_TABLES;
use futures_util::future::BoxFuture;

use super::super::settings::Settings;

/// What a schema has beyond the tables of its crate.
#[derive(Debug)]
pub(super) struct Contents {
    /// Tables made of others by a query.
    views: &'static [(&'static str, &'static str)],
    /// Columns of the crate's tables whose values are others, and columns that it lacks: an expression each.
    columns: &'static [(&'static str, &'static [(&'static str, &'static str)])],
    /// Tables without rows, and their columns.
    empty: &'static [(&'static str, &'static str)],
    /// Tables of the crate with rows about objects that are not there.
    emptied: &'static [&'static str],
}

/// `pg_catalog`.
pub(super) const PG_CATALOG: &Contents = &Contents {
    views: &[
        (
            "pg_tables",
            "SELECT n.nspname AS schemaname, c.relname AS tablename, pg_get_userbyid(10) AS tableowner,
               CAST(NULL AS TEXT) AS tablespace, false AS hasindexes, false AS hasrules, false AS hastriggers,
               false AS rowsecurity
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             WHERE c.relkind IN ('r', 'p')",
        ),
        (
            "pg_views",
            "SELECT n.nspname AS schemaname, c.relname AS viewname, pg_get_userbyid(10) AS viewowner,
               CAST(NULL AS TEXT) AS definition
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             WHERE c.relkind = 'v'",
        ),
        (
            "pg_user",
            "SELECT rolname AS usename, oid AS usesysid, rolcreatedb AS usecreatedb, rolsuper AS usesuper,
               rolreplication AS userepl, rolbypassrls AS usebypassrls, rolpassword AS passwd,
               rolvaliduntil AS valuntil, rolconfig AS useconfig FROM pg_catalog.pg_roles",
        ),
        (
            "pg_stat_activity",
            "SELECT CAST(1 AS INT) AS datid, current_database() AS datname, pg_backend_pid() AS pid,
               CAST(NULL AS INT) AS leader_pid, CAST(10 AS INT) AS usesysid, pg_get_userbyid(10) AS usename,
               current_setting('application_name') AS application_name, CAST(NULL AS TEXT) AS client_addr,
               CAST(NULL AS TEXT) AS client_hostname, CAST(NULL AS INT) AS client_port,
               now() AS backend_start, now() AS xact_start, now() AS query_start, now() AS state_change,
               CAST(NULL AS TEXT) AS wait_event_type, CAST(NULL AS TEXT) AS wait_event,
               'active' AS state, CAST(NULL AS TEXT) AS backend_xid, CAST(NULL AS TEXT) AS backend_xmin,
               CAST(NULL AS BIGINT) AS query_id, CAST('' AS TEXT) AS query, 'client backend' AS backend_type",
        ),
    ],
    columns: &[
        (
            "pg_class",
            &[
                ("relowner", "CAST(10 AS INT)"),
                // Of tables with pages DuckDB asks for rows by their places.
                ("relpages", "CAST(0 AS INT)"),
                ("reltuples", "CAST(-1 AS REAL)"),
                ("relpartbound", "CAST(NULL AS TEXT)"),
                ("relacl", "CAST(NULL AS TEXT[])"),
                ("reloptions", "CAST(NULL AS TEXT[])"),
            ],
        ),
        (
            "pg_attribute",
            &[
                ("attacl", "CAST(NULL AS TEXT[])"),
                ("attoptions", "CAST(NULL AS TEXT[])"),
                ("attfdwoptions", "CAST(NULL AS TEXT[])"),
            ],
        ),
        ("pg_namespace", &[("nspowner", "CAST(10 AS INT)"), ("nspacl", "CAST(NULL AS TEXT[])")]),
        ("pg_database", &[("datacl", "CAST(NULL AS TEXT[])"), ("datcollversion", "CAST(NULL AS TEXT)")]),
        ("pg_roles", &[("oid", "CAST(10 AS INT)")]),
        ("pg_type", &[("typacl", "CAST(NULL AS TEXT[])")]),
        (
            "pg_proc",
            &[
                ("proacl", "CAST(NULL AS TEXT[])"),
                (
                    "proallargtypes",
                    "CAST(string_to_array(translate(proallargtypes, '[] ', ''), ',') AS INT[])",
                ),
                ("proargmodes", "string_to_array(translate(proargmodes, '[]'' ', ''), ',')"),
                ("proargnames", "string_to_array(translate(proargnames, '[]'' ', ''), ',')"),
            ],
        ),
        ("pg_language", &[("lanacl", "CAST(NULL AS TEXT[])")]),
        ("pg_tablespace", &[("spcacl", "CAST(NULL AS TEXT[])"), ("spcoptions", "CAST(NULL AS TEXT[])")]),
    ],
    empty: &[
        ("pg_available_extensions", "name default_version installed_version comment"),
        ("pg_cursors", "name statement is_holdable:bool is_binary:bool is_scrollable:bool creation_time"),
        ("pg_group", "groname grosysid:int grolist"),
        ("pg_indexes", "schemaname tablename indexname tablespace indexdef"),
        (
            "pg_locks",
            "locktype database:int relation:int page:int tuple:int virtualxid transactionid classid:int \
             objid:int objsubid:int virtualtransaction pid:int mode granted:bool fastpath:bool waitstart",
        ),
        ("pg_policies", "schemaname tablename policyname permissive roles cmd qual with_check"),
        ("pg_prepared_statements", "name statement prepare_time parameter_types from_sql:bool"),
        ("pg_prepared_xacts", "transaction gid prepared owner database"),
        ("pg_rules", "schemaname tablename rulename definition"),
        (
            "pg_sequences",
            "schemaname sequencename sequenceowner data_type start_value:bigint min_value:bigint \
             max_value:bigint increment_by:bigint cycle:bool cache_size:bigint last_value:bigint",
        ),
        (
            "pg_stat_user_indexes",
            "relid:int indexrelid:int schemaname relname indexrelname idx_scan:bigint idx_tup_read:bigint \
             idx_tup_fetch:bigint",
        ),
        (
            "pg_stats",
            "schemaname tablename attname inherited:bool null_frac:float avg_width:int n_distinct:float",
        ),
        ("pg_timezone_names", "name abbrev utc_offset is_dst:bool"),
    ],
    emptied: &[
        "pg_attrdef",
        "pg_auth_members",
        "pg_constraint",
        "pg_depend",
        "pg_enum",
        "pg_event_trigger",
        "pg_foreign_data_wrapper",
        "pg_foreign_server",
        "pg_foreign_table",
        "pg_index",
        "pg_inherits",
        "pg_init_privs",
        "pg_matviews",
        "pg_partitioned_table",
        "pg_policy",
        "pg_publication",
        "pg_publication_namespace",
        "pg_publication_rel",
        "pg_rewrite",
        "pg_sequence",
        "pg_shdepend",
        "pg_statistic",
        "pg_statistic_ext",
        "pg_statistic_ext_data",
        "pg_subscription",
        "pg_subscription_rel",
        "pg_trigger",
        "pg_user_mapping",
    ],
};

/// `information_schema`.
pub(super) const INFORMATION: &Contents = &Contents {
    views: &[
        ("information_schema_catalog_name", "SELECT current_database() AS catalog_name"),
        (
            "schemata",
            "SELECT current_database() AS catalog_name, nspname AS schema_name,
               pg_get_userbyid(10) AS schema_owner, CAST(NULL AS TEXT) AS default_character_set_catalog,
               CAST(NULL AS TEXT) AS default_character_set_schema,
               CAST(NULL AS TEXT) AS default_character_set_name, CAST(NULL AS TEXT) AS sql_path
             FROM pg_catalog.pg_namespace",
        ),
        (
            "tables",
            "SELECT current_database() AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
               CASE WHEN c.relkind = 'v' THEN 'VIEW' WHEN n.nspname = 'pg_temp' THEN 'LOCAL TEMPORARY'
                 ELSE 'BASE TABLE' END AS table_type,
               CAST(NULL AS TEXT) AS self_referencing_column_name, CAST(NULL AS TEXT) AS reference_generation,
               CAST(NULL AS TEXT) AS user_defined_type_catalog,
               CAST(NULL AS TEXT) AS user_defined_type_schema, CAST(NULL AS TEXT) AS user_defined_type_name,
               'NO' AS is_insertable_into, 'NO' AS is_typed, CAST(NULL AS TEXT) AS commit_action
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace",
        ),
        (
            "views",
            "SELECT current_database() AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
               CAST(NULL AS TEXT) AS view_definition, 'NONE' AS check_option, 'NO' AS is_updatable,
               'NO' AS is_insertable_into, 'NO' AS is_trigger_updatable, 'NO' AS is_trigger_deletable,
               'NO' AS is_trigger_insertable_into
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             WHERE c.relkind = 'v'",
        ),
        (
            "columns",
            "SELECT current_database() AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
               a.attname AS column_name, CAST(a.attnum AS INT) AS ordinal_position,
               CAST(NULL AS TEXT) AS column_default,
               CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable,
               CASE WHEN t.typcategory = 'A' THEN 'ARRAY' ELSE format_type(a.atttypid, CAST(NULL AS INT)) END
                 AS data_type,
               CAST(NULL AS INT) AS character_maximum_length,
               CAST(CASE t.typname WHEN 'text' THEN 1073741824 END AS INT) AS character_octet_length,
               CAST(CASE t.typname WHEN 'int2' THEN 16 WHEN 'int4' THEN 32 WHEN 'int8' THEN 64
                 WHEN 'float4' THEN 24 WHEN 'float8' THEN 53 END AS INT) AS numeric_precision,
               CAST(CASE WHEN t.typname IN ('int2', 'int4', 'int8', 'float4', 'float8') THEN 2
                 WHEN t.typname = 'numeric' THEN 10 END AS INT) AS numeric_precision_radix,
               CAST(CASE WHEN t.typname IN ('int2', 'int4', 'int8') THEN 0 END AS INT) AS numeric_scale,
               CAST(CASE WHEN t.typname = 'date' THEN 0
                 WHEN t.typname IN ('time', 'timetz', 'timestamp', 'timestamptz', 'interval') THEN 6 END
                 AS INT) AS datetime_precision,
               CAST(NULL AS TEXT) AS interval_type, CAST(NULL AS INT) AS interval_precision,
               CAST(NULL AS TEXT) AS character_set_catalog, CAST(NULL AS TEXT) AS character_set_schema,
               CAST(NULL AS TEXT) AS character_set_name, CAST(NULL AS TEXT) AS collation_catalog,
               CAST(NULL AS TEXT) AS collation_schema, CAST(NULL AS TEXT) AS collation_name,
               CAST(NULL AS TEXT) AS domain_catalog, CAST(NULL AS TEXT) AS domain_schema,
               CAST(NULL AS TEXT) AS domain_name, current_database() AS udt_catalog,
               'pg_catalog' AS udt_schema, t.typname AS udt_name, CAST(NULL AS TEXT) AS scope_catalog,
               CAST(NULL AS TEXT) AS scope_schema, CAST(NULL AS TEXT) AS scope_name,
               CAST(NULL AS INT) AS maximum_cardinality, CAST(a.attnum AS TEXT) AS dtd_identifier,
               'NO' AS is_self_referencing, 'NO' AS is_identity, CAST(NULL AS TEXT) AS identity_generation,
               CAST(NULL AS TEXT) AS identity_start, CAST(NULL AS TEXT) AS identity_increment,
               CAST(NULL AS TEXT) AS identity_maximum, CAST(NULL AS TEXT) AS identity_minimum,
               'NO' AS identity_cycle, 'NEVER' AS is_generated,
               CAST(NULL AS TEXT) AS generation_expression, 'NO' AS is_updatable
             FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
               JOIN pg_catalog.pg_type t ON t.oid = a.atttypid",
        ),
        (
            "table_privileges",
            "SELECT pg_get_userbyid(10) AS grantor, pg_get_userbyid(10) AS grantee, table_catalog, table_schema,
               table_name, 'SELECT' AS privilege_type, 'NO' AS is_grantable, 'YES' AS with_hierarchy
             FROM information_schema.tables",
        ),
        ("role_table_grants", "SELECT * FROM information_schema.table_privileges"),
        ("enabled_roles", "SELECT pg_get_userbyid(10) AS role_name"),
    ],
    columns: &[],
    empty: &[
        ("applicable_roles", "grantee role_name is_grantable"),
        ("character_sets", "character_set_catalog character_set_schema character_set_name"),
        ("check_constraints", "constraint_catalog constraint_schema constraint_name check_clause"),
        ("collations", "collation_catalog collation_schema collation_name pad_attribute"),
        (
            "constraint_column_usage",
            "table_catalog table_schema table_name column_name constraint_catalog constraint_schema \
             constraint_name",
        ),
        (
            "constraint_table_usage",
            "table_catalog table_schema table_name constraint_catalog constraint_schema constraint_name",
        ),
        ("domains", "domain_catalog domain_schema domain_name data_type"),
        (
            "element_types",
            "object_catalog object_schema object_name object_type collection_type_identifier data_type \
             udt_catalog udt_schema udt_name dtd_identifier",
        ),
        (
            "key_column_usage",
            "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name \
             column_name ordinal_position:int position_in_unique_constraint:int",
        ),
        (
            "referential_constraints",
            "constraint_catalog constraint_schema constraint_name unique_constraint_catalog \
             unique_constraint_schema unique_constraint_name match_option update_rule delete_rule",
        ),
        (
            "sequences",
            "sequence_catalog sequence_schema sequence_name data_type start_value minimum_value \
             maximum_value increment cycle_option",
        ),
        (
            "table_constraints",
            "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name \
             constraint_type is_deferrable initially_deferred enforced nulls_distinct",
        ),
        (
            "triggers",
            "trigger_catalog trigger_schema trigger_name event_manipulation event_object_catalog \
             event_object_schema event_object_table action_order:int action_condition action_statement \
             action_orientation action_timing",
        ),
        ("view_table_usage", "view_catalog view_schema view_name table_catalog table_schema table_name"),
    ],
    emptied: &[],
};

/// Whether a table of `pg_catalog`, or of `information_schema` where the name says so, has no rows ever.
pub(in crate::server) fn is_empty(schema: Option<&str>, table: &str) -> bool {
    let contents = if schema == Some("information_schema") { INFORMATION } else { PG_CATALOG };
    contents.emptied.contains(&table) || contents.empty.iter().any(|(name, _)| *name == table)
}

/// Whether `pg_catalog` has a table of this name.
pub(in crate::server) fn is_table(name: &str) -> bool {
    let own = [PG_CATALOG.views, PG_CATALOG.empty];
    PG_CATALOG_TABLES.contains(&name) || own.iter().any(|tables| tables.iter().any(|(own, _)| *own == name))
}

/// Gives the state of a session; `None` when the session is over. The state has this schema, so the schema
/// must not hold it.
pub(super) type StateOf = Arc<dyn Fn() -> Option<SessionState> + Send + Sync>;

/// One of the two schemas.
pub(super) struct SystemSchema {
    contents: &'static Contents,
    /// The tables of the crate.
    base: Arc<dyn SchemaProvider>,
    /// Plans queries.
    state: StateOf,
    settings: Arc<Mutex<Settings>>,
    planned: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
}

impl fmt::Debug for SystemSchema {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("SystemSchema").field("base", &self.base).finish_non_exhaustive()
    }
}

impl SystemSchema {
    pub(super) fn new(
        contents: &'static Contents,
        base: Arc<dyn SchemaProvider>,
        state: StateOf,
        settings: Arc<Mutex<Settings>>,
    ) -> Self {
        Self { contents, base, state, settings, planned: Mutex::default() }
    }

    fn state(&self) -> Result<SessionState> {
        match (self.state)() {
            Some(state) => Ok(state),
            None => exec_err!("the session is over"),
        }
    }

    /// The table of a query; a future of its own, as that of a plan is (`planned` in `session.rs`).
    fn view(&self, text: &'static str) -> BoxFuture<'_, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let plan = self.state()?.create_logical_plan(text).await?;
            Ok(Arc::new(ViewTable::new(plan, Some(text.to_owned()))) as Arc<dyn TableProvider>)
        })
    }

    async fn make(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let find = |tables: &'static [(&str, &'static str)]| {
            tables.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
        };
        if let Some(text) = find(self.contents.views) {
            return self.view(text).await.map(Some);
        }
        if let Some(columns) = find(self.contents.empty) {
            return Ok(Some(Arc::new(EmptyTable::new(schema(columns)))));
        }
        let Some(base) = self.base.table(name).await? else { return Ok(None) };
        if self.contents.emptied.contains(&name) {
            return Ok(Some(Arc::new(EmptyTable::new(base.schema()))));
        }
        let Some((_, columns)) = self.contents.columns.iter().find(|(own, _)| *own == name) else {
            return Ok(Some(base));
        };
        self.mended(name, base, columns).map(Some)
    }

    fn mended(
        &self,
        name: &str,
        base: Arc<dyn TableProvider>,
        columns: &[(&str, &str)],
    ) -> Result<Arc<dyn TableProvider>> {
        let state = self.state()?;
        let fields = base.schema();
        let plan = LogicalPlanBuilder::scan(name, provider_as_source(base), None)?;
        let mut exprs: Vec<Expr> = Vec::new();
        let own = |wanted: &str| columns.iter().find(|(column, _)| *column == wanted);
        let expr = |text: &str, column: &str| {
            Ok::<_, DataFusionError>(state.create_logical_expr(text, plan.schema())?.alias(column))
        };
        for field in fields.fields() {
            exprs.push(match own(field.name()) {
                Some((column, text)) => expr(text, column)?,
                None => ident(field.name()),
            });
        }
        for (column, text) in columns.iter().filter(|(column, _)| fields.column_with_name(column).is_none()) {
            exprs.push(expr(text, column)?);
        }
        let plan = match name {
            // The crate always tells of a database `postgres` too.
            "pg_database" => {
                let own = state.create_logical_expr("datname = current_database()", plan.schema())?;
                plan.filter(own)?
            }
            _ => plan,
        };
        Ok(Arc::new(ViewTable::new(plan.project(exprs)?.build()?, None)))
    }

    /// `pg_settings`, of now.
    fn settings(&self) -> Result<Arc<dyn TableProvider>> {
        let known: Vec<(String, String)> = {
            let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
            settings.all().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let fields = schema(
            "name setting unit category short_desc extra_desc context vartype source min_val max_val \
             enumvals boot_val reset_val sourcefile sourceline:int pending_restart:bool",
        );
        let all = |value: &str| Arc::new(StringArray::from(vec![value; known.len()])) as ArrayRef;
        let columns = fields.fields().iter().map(|field| match field.name().as_str() {
            "name" => Arc::new(StringArray::from_iter_values(known.iter().map(|(name, _)| name))),
            "setting" | "reset_val" | "boot_val" => {
                Arc::new(StringArray::from_iter_values(known.iter().map(|(_, value)| value))) as ArrayRef
            }
            "category" | "short_desc" => all(""),
            "context" => all("user"),
            "vartype" => all("string"),
            "source" => all("default"),
            _ => new_null_array(field.data_type(), known.len()),
        });
        let columns: Vec<ArrayRef> = columns.collect();
        let batch = RecordBatch::try_new(Arc::clone(&fields), columns)?;
        Ok(Arc::new(MemTable::try_new(fields, vec![vec![batch]])?))
    }
}

/// Columns as they are written above: texts, unless a type is named.
fn schema(columns: &str) -> SchemaRef {
    let field = |column: &str| {
        let (name, data_type) = match column.split_once(':') {
            None => (column, DataType::Utf8),
            Some((name, "int")) => (name, DataType::Int32),
            Some((name, "bigint")) => (name, DataType::Int64),
            Some((name, "bool")) => (name, DataType::Boolean),
            Some((name, _)) => (name, DataType::Float64),
        };
        Field::new(name, data_type, true)
    };
    Arc::new(Schema::new(columns.split_whitespace().map(field).collect::<Vec<_>>()))
}

#[async_trait]
impl SchemaProvider for SystemSchema {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.base.table_names();
        let own = self.contents.views.iter().chain(self.contents.empty);
        names.extend(own.map(|(name, _)| (*name).to_owned()));
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if name == "pg_settings" {
            return self.settings().map(Some);
        }
        let planned = || self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = planned().get(name).cloned() {
            return Ok(Some(table));
        }
        let made = self.make(name).await?;
        if let Some(table) = &made {
            planned().insert(name.to_owned(), Arc::clone(table));
        }
        Ok(made)
    }

    fn table_exist(&self, name: &str) -> bool {
        let own = self.contents.views.iter().chain(self.contents.empty);
        self.base.table_exist(name) || own.clone().any(|(own, _)| *own == name)
    }
}
