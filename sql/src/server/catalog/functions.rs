//! Functions about the server, the session, its settings and the types of values.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use arrow_pg::datatypes::into_pg_type;
use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, Int32Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::scalar::ScalarStructBuilder;
use datafusion::common::types::{NativeType, logical_int64};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    Coercion, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    TypeSignatureClass, Volatility,
};
use datafusion::prelude::SessionContext;
use postgres_types::Type;

use crate::server::settings::{SERVER_VERSION, Settings};

/// Gives a session the functions.
pub(super) fn register(context: &SessionContext, user: &str, pid: i32, settings: &Arc<Mutex<Settings>>) {
    for (name, value) in constants(user, pid) {
        context.register_udf(ScalarUDF::from(Constant::new(name, value)));
    }
    let uuid = datafusion::functions::string::uuid();
    context.register_udf(uuid.as_ref().clone().with_aliases(["gen_random_uuid"]));
    context
        .register_udf(ScalarUDF::from(ToRegtype { signature: Signature::string(1, Volatility::Immutable) }));
    context.register_udf(ScalarUDF::from(TypeOf { signature: Signature::any(1, Volatility::Stable) }));
    let bytes = Signature::coercible(
        vec![Coercion::new_implicit(
            TypeSignatureClass::Native(logical_int64()),
            vec![TypeSignatureClass::Integer, TypeSignatureClass::Numeric],
            NativeType::Int64,
        )],
        Volatility::Immutable,
    );
    context.register_udf(ScalarUDF::from(SizePretty { signature: bytes }));
    let texts = Signature::variadic_any(Volatility::Immutable);
    context.register_udf(ScalarUDF::from(FormatText { signature: texts }));
    for does_set in [false, true] {
        context.register_udf(ScalarUDF::from(Setting::new(does_set, settings)));
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
        "has_tablespace_privilege",
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
    // Nobody has measured these.
    let sizes = ["pg_database_size", "pg_indexes_size", "pg_relation_size", "pg_table_size"];
    constants.extend(sizes.map(|name| (name, ScalarValue::Int64(None))));
    constants.push(("pg_total_relation_size", ScalarValue::Int64(None)));
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

/// What Postgres' manual calls a type.
pub(in crate::server) fn display_name(known: &Type) -> String {
    match known.name() {
        "bool" => "boolean",
        "bpchar" => "character",
        "float4" => "real",
        "float8" => "double precision",
        "int2" => "smallint",
        "int4" => "integer",
        "int8" => "bigint",
        "timestamp" => "timestamp without time zone",
        "timestamptz" => "timestamp with time zone",
        "time" => "time without time zone",
        "varchar" => "character varying",
        other => match other.strip_prefix('_').and_then(type_number) {
            Some(item) => {
                let item = u32::try_from(item).ok().and_then(Type::from_oid);
                return format!("{}[]", item.map_or_else(|| "text".to_owned(), |item| display_name(&item)));
            }
            None => other,
        },
    }
    .to_owned()
}

/// `pg_typeof(value)`: what Postgres calls the type in which a value is sent.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TypeOf {
    signature: Signature,
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &str {
        "pg_typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let name = match args.arg_fields.first().map(|field| field.data_type()) {
            None | Some(DataType::Null) => "unknown".to_owned(),
            Some(data_type) => {
                into_pg_type(data_type).map_or_else(|_| "text".to_owned(), |t| display_name(&t))
            }
        };
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))))
    }
}

/// `pg_size_pretty(bytes)`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SizePretty {
    signature: Signature,
}

impl ScalarUDFImpl for SizePretty {
    fn name(&self) -> &str {
        "pg_size_pretty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let sizes = ColumnarValue::values_to_arrays(&args.args)?;
        let sizes = cast(&sizes[0], &DataType::Int64)?;
        let shown: StringArray =
            sizes.as_primitive::<Int64Type>().iter().map(|bytes| bytes.map(size)).collect();
        Ok(ColumnarValue::Array(Arc::new(shown)))
    }
}

/// A number of bytes in the largest unit of which there are at least ten.
fn size(bytes: i64) -> String {
    let (mut number, mut unit) = (bytes, "bytes");
    for larger in ["kB", "MB", "GB", "TB", "PB"] {
        if number.unsigned_abs() < 10 * 1024 {
            break;
        }
        (number, unit) = ((number + 512 * number.signum()) / 1024, larger);
    }
    format!("{number} {unit}")
}

/// `format(pattern, values..)`, with `%s`, `%I`, `%L` and `%%`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FormatText {
    signature: Signature,
}

impl ScalarUDFImpl for FormatText {
    fn name(&self) -> &str {
        "format"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays =
            args.args.iter().map(|arg| arg.to_array(args.number_rows)).collect::<Result<Vec<_>>>()?;
        let texts = arrays
            .iter()
            .map(|array| Ok(cast(array, &DataType::Utf8)?))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let texts: Vec<&StringArray> = texts.iter().map(|texts| texts.as_string::<i32>()).collect();
        let rows = (0..args.number_rows).map(|row| {
            let mut values = texts.iter().map(|texts| texts.is_valid(row).then(|| texts.value(row)));
            let Some(pattern) = values.next().flatten() else { return Ok(None) };
            formatted(pattern, values).map(Some)
        });
        Ok(ColumnarValue::Array(Arc::new(rows.collect::<Result<StringArray>>()?)))
    }
}

fn formatted<'a>(pattern: &str, mut values: impl Iterator<Item = Option<&'a str>>) -> Result<String> {
    let mut text = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let kind = letters.next();
        if kind == Some('%') {
            text.push('%');
            continue;
        }
        let Some(value) = values.next() else { return exec_err!("too few arguments for format()") };
        match (kind, value) {
            (Some('s'), value) => text.push_str(value.unwrap_or_default()),
            (Some('L'), None) => text.push_str("NULL"),
            (Some('L'), Some(value)) => text.push_str(&format!("'{}'", value.replace('\'', "''"))),
            (Some('I'), Some(value)) => text.push_str(&quoted(value)),
            (Some('I'), None) => return exec_err!("null values cannot be formatted as an SQL identifier"),
            _ => return exec_err!("format(): only %s, %I, %L and %% are known"),
        }
    }
    Ok(text)
}

/// A name as statements have it.
fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_units_of_at_least_ten() {
        for (bytes, shown) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (-20_000_000, "-19 MB"),
            (1 << 40, "1024 GB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn texts_are_formatted() {
        let values = || [Some("a'b"), Some("My table"), None].into_iter();
        assert_eq!(formatted("%L.%I %s%%", values()).unwrap(), "'a''b'.\"My table\" %");
        assert!(formatted("%s %s %s %s", values()).is_err() && formatted("%d", values()).is_err());
    }

    #[test]
    fn types_have_the_names_of_the_manual() {
        for (known, shown) in
            [(Type::INT8, "bigint"), (Type::TEXT_ARRAY, "text[]"), (Type::FLOAT8_ARRAY, "double precision[]")]
        {
            assert_eq!(display_name(&known), shown);
        }
    }
}
