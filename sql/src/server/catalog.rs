//! What Postgres' clients expect to find: `pg_catalog` (from `datafusion-pg-catalog`), and functions about
//! the server, the session and its settings.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use async_trait::async_trait;
use datafusion::arrow::array::{AsArray as _, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::scalar::ScalarStructBuilder;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use datafusion::prelude::SessionContext;
use datafusion_pg_catalog::pg_catalog::context::{PgCatalogContextProvider, Role};
use datafusion_pg_catalog::setup_pg_catalog;
use postgres_types::Type;

use super::settings::{SERVER_VERSION, Settings};

/// Gives a session the catalogue and the functions.
pub(super) fn install(
    context: &SessionContext,
    user: &str,
    pid: i32,
    settings: &Arc<Mutex<Settings>>,
) -> Result<()> {
    let catalog = context.state().config_options().catalog.default_catalog.clone();
    let user = user.to_owned();
    setup_pg_catalog(context, &catalog, User(user.clone())).map_err(|error| *error)?;
    for (name, value) in constants(&user, pid) {
        context.register_udf(ScalarUDF::from(Constant::new(name, value)));
    }
    let uuid = datafusion::functions::string::uuid();
    context.register_udf(uuid.as_ref().clone().with_aliases(["gen_random_uuid"]));
    context
        .register_udf(ScalarUDF::from(ToRegtype { signature: Signature::string(1, Volatility::Immutable) }));
    for does_set in [false, true] {
        context.register_udf(ScalarUDF::from(Setting::new(does_set, settings)));
    }
    Ok(())
}

/// The one role: the user who is connected.
#[derive(Clone, Debug)]
struct User(String);

#[async_trait]
impl PgCatalogContextProvider for User {
    async fn roles(&self) -> Vec<String> {
        vec![self.0.clone()]
    }

    async fn role(&self, name: &str) -> Option<Role> {
        (name == self.0).then(|| Role {
            name: self.0.clone(),
            is_superuser: false,
            can_login: true,
            can_create_db: false,
            can_create_role: false,
            can_create_user: false,
            can_replication: false,
            grants: Vec::new(),
            inherited_roles: Vec::new(),
        })
    }
}

/// Functions that give the same whatever they are asked.
fn constants(user: &str, pid: i32) -> Vec<(&'static str, ScalarValue)> {
    let version = format!(
        "PostgreSQL {SERVER_VERSION} (RelServe {}, DataFusion {})",
        env!("CARGO_PKG_VERSION"),
        datafusion::DATAFUSION_VERSION
    );
    let text = |text: &str| ScalarValue::from(text);
    let no_text = || ScalarValue::Utf8(None);
    let mut constants = vec![
        ("version", text(&version)),
        ("session_user", text(user)),
        ("current_user", text(user)),
        ("pg_get_userbyid", text(user)),
        ("pg_backend_pid", ScalarValue::Int32(Some(pid))),
        ("pg_is_in_recovery", ScalarValue::from(false)),
        ("pg_is_other_temp_schema", ScalarValue::from(false)),
        ("pg_my_temp_schema", ScalarValue::Int32(Some(0))),
        ("pg_client_encoding", text("UTF8")),
        ("getdatabaseencoding", text("UTF8")),
        ("pg_export_snapshot", text("00000003-00000001-1")),
        ("pg_current_snapshot", text("1:1:")),
        ("txid_current", ScalarValue::Int64(Some(1))),
        ("pg_advisory_unlock_all", text("")),
    ];
    let visible = [
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_function_is_visible",
        "pg_opclass_is_visible",
        "pg_operator_is_visible",
        "pg_opfamily_is_visible",
        "pg_statistics_obj_is_visible",
        "pg_table_is_visible",
        "pg_ts_config_is_visible",
        "pg_type_is_visible",
        "has_column_privilege",
        "has_function_privilege",
        "has_language_privilege",
        "has_sequence_privilege",
        "has_type_privilege",
        "pg_has_role",
    ];
    constants.extend(visible.map(|name| (name, ScalarValue::from(true))));
    let nothing = [
        "col_description",
        "obj_description",
        "shobj_description",
        "inet_client_addr",
        "inet_server_addr",
        "pg_get_functiondef",
        "pg_get_function_arguments",
        "pg_get_function_identity_arguments",
        "pg_get_function_result",
        "pg_get_function_sqlbody",
        "pg_get_indexdef",
        "pg_get_ruledef",
        "pg_get_serial_sequence",
        "pg_get_triggerdef",
        "pg_get_viewdef",
        "pg_tablespace_location",
    ];
    constants.extend(nothing.map(|name| (name, no_text())));
    // A place in an index's key: pgjdbc asks for those of tables, which have none.
    let place = ["x", "n"].map(|name| Field::new(name, DataType::Int32, true));
    let no_place = ScalarStructBuilder::new_null(place.to_vec());
    constants.push(("_pg_expandarray", no_place));
    constants
}

fn any_arguments(volatility: Volatility) -> Signature {
    Signature::one_of(vec![TypeSignature::Nullary, TypeSignature::VariadicAny], volatility)
}

/// A function that always gives the same value.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    name: &'static str,
    value: ScalarValue,
    signature: Signature,
}

impl Constant {
    fn new(name: &'static str, value: ScalarValue) -> Self {
        Self { name, value, signature: any_arguments(Volatility::Stable) }
    }
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.value.data_type())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

/// `to_regtype(name)`: the number of a type, NULL for an unknown one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToRegtype {
    signature: Signature,
}

impl ScalarUDFImpl for ToRegtype {
    fn name(&self) -> &str {
        "to_regtype"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = matches!(args.args.as_slice(), [ColumnarValue::Scalar(_)]);
        let names = ColumnarValue::values_to_arrays(&args.args)?;
        let names = cast(&names[0], &DataType::Utf8)?;
        let numbers: Int32Array = names.as_string::<i32>().iter().map(|name| type_number(name?)).collect();
        Ok(if is_one {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&numbers, 0)?)
        } else {
            ColumnarValue::Array(Arc::new(numbers))
        })
    }
}

/// The number of one of Postgres' own types.
fn type_number(name: &str) -> Option<i32> {
    /// Types of Postgres itself have numbers below this.
    const OWN_MAX: u32 = 10_000;
    static NUMBERS: LazyLock<HashMap<String, i32>> = LazyLock::new(|| {
        let types = (1..OWN_MAX).filter_map(Type::from_oid);
        types.filter_map(|known| Some((known.name().to_owned(), i32::try_from(known.oid()).ok()?))).collect()
    });
    let name = name.trim().to_ascii_lowercase();
    let name = name.trim_start_matches("pg_catalog.").trim_matches('"');
    let name = match name {
        "bigint" => "int8",
        "boolean" => "bool",
        "character varying" => "varchar",
        "decimal" => "numeric",
        "double precision" => "float8",
        "int" | "integer" => "int4",
        "real" => "float4",
        "smallint" => "int2",
        "timestamp with time zone" => "timestamptz",
        "timestamp without time zone" => "timestamp",
        other => other,
    };
    NUMBERS.get(name).copied()
}

/// `current_setting(name [, missing_ok])` and `set_config(name, value, is_local)`.
#[derive(Debug)]
struct Setting {
    does_set: bool,
    settings: Arc<Mutex<Settings>>,
    signature: Signature,
}

impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.does_set == other.does_set && Arc::ptr_eq(&self.settings, &other.settings)
    }
}

impl Eq for Setting {}

impl std::hash::Hash for Setting {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.does_set.hash(state);
    }
}

impl Setting {
    fn new(does_set: bool, settings: &Arc<Mutex<Settings>>) -> Self {
        // What is set during planning would be set by EXPLAIN too.
        let volatility = if does_set { Volatility::Volatile } else { Volatility::Stable };
        Self { does_set, settings: Arc::clone(settings), signature: any_arguments(volatility) }
    }
}

impl ScalarUDFImpl for Setting {
    fn name(&self) -> &str {
        if self.does_set { "set_config" } else { "current_setting" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let text = |index: usize| match args.args.get(index) {
            Some(ColumnarValue::Scalar(value)) => value.try_as_str().flatten().map(str::to_owned),
            _ => None,
        };
        let Some(name) = text(0) else { return exec_err!("{}: the name must be a text", self.name()) };
        let mut settings = self.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.does_set
            && let Err(error) = settings.set(&name, text(1).as_deref())
        {
            return exec_err!("{}", error.message);
        }
        let may_miss =
            matches!(args.args.get(1), Some(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true)))));
        match settings.get(&name) {
            None if !may_miss => exec_err!("unrecognized configuration parameter \"{name}\""),
            value => Ok(ColumnarValue::Scalar(ScalarValue::Utf8(value.map(str::to_owned)))),
        }
    }
}
