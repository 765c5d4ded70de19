//! Functions whose texts may be far longer than what they are made of, under a bound: a statement of a hundred letters could
//! take all memory by one of them, which no limit of the plan's operators counts.

use std::sync::Arc;

use datafusion::arrow::array::{Array as _, AsArray as _, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// Most bytes of a text that such a function makes.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Most bytes of what it makes of a batch of rows.
const BATCH_BYTES_MAX: u64 = 512 << 20;

/// What a function makes of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Growth {
    /// The first so many times.
    Repeats,
    /// At least so many characters.
    Pads,
    /// The first, where what is the second became the third.
    Replaces,
    /// Likewise, where the second is a pattern, which may be found before each character and at the end.
    ReplacesPattern,
    /// All of them.
    Joins,
}

/// The functions.
const GROWTHS: [(&str, Growth); 7] = [
    ("repeat", Growth::Repeats),
    ("lpad", Growth::Pads),
    ("rpad", Growth::Pads),
    ("replace", Growth::Replaces),
    ("regexp_replace", Growth::ReplacesPattern),
    ("concat", Growth::Joins),
    ("concat_ws", Growth::Joins),
];

/// Puts bounds on the functions of a session.
pub(crate) fn bound(context: &SessionContext) {
    let state = context.state();
    for (name, growth) in GROWTHS {
        if let Some(inner) = state.scalar_functions().get(name) {
            context.register_udf(ScalarUDF::from(BoundedText { inner: Arc::clone(inner), growth }));
        }
    }
}

/// A function that is not called for texts that are too long.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundedText {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

impl ScalarUDFImpl for BoundedText {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let sizes = args.args.iter().map(ArgumentSizes::of).collect::<Result<Vec<_>>>()?;
        let is_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { args.number_rows };
        let mut sum = 0_u64;
        for row in 0..rows {
            let bytes = self.growth.bytes(&sizes, row);
            sum = sum.saturating_add(bytes);
            if bytes > TEXT_BYTES_MAX {
                let name = self.name();
                return exec_err!("{name}: a text of {bytes} bytes exceeds the limit of {TEXT_BYTES_MAX}");
            }
        }
        // What may be found is counted as if it were: only many long texts are surely too much.
        let is_exact = matches!(self.growth, Growth::Repeats | Growth::Pads | Growth::Joins);
        if is_exact && sum > BATCH_BYTES_MAX {
            let name = self.name();
            return exec_err!("{name}: {sum} bytes of {rows} rows exceed the limit of {BATCH_BYTES_MAX}");
        }
        self.inner.inner().invoke_with_args(args)
    }
}

impl Growth {
    /// Bytes of what a row's arguments become, at most, or about where characters are counted.
    fn bytes(self, sizes: &[ArgumentSizes], row: usize) -> u64 {
        let size = |arg: usize| sizes.get(arg).map_or(0, |sizes| sizes.at(row));
        let replaced = |places: u64| size(0).saturating_add(places.saturating_mul(size(2)));
        match self {
            Self::Repeats => size(0).saturating_mul(size(1)),
            Self::Pads => size(1),
            Self::Replaces => replaced(size(0) / size(1).max(1) + 1),
            Self::ReplacesPattern => replaced(size(0) + 1),
            Self::Joins => (0..sizes.len()).fold(0, |sum: u64, arg| sum.saturating_add(size(arg))),
        }
    }
}

/// Of an argument's texts their bytes, of its numbers what they are; 0 for what is missing or below it.
enum ArgumentSizes {
    Same(u64),
    Each(Int64Array),
}

impl ArgumentSizes {
    fn of(arg: &ColumnarValue) -> Result<Self> {
        let is_text = |data_type: &DataType| {
            matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        };
        Ok(match arg {
            ColumnarValue::Scalar(value) => match value.try_as_str() {
                Some(text) => Self::Same(text.map_or(0, |text| text.len() as u64)),
                None => match value.cast_to(&DataType::Int64) {
                    Ok(ScalarValue::Int64(Some(number))) => Self::Same(u64::try_from(number).unwrap_or(0)),
                    _ => Self::Same(0),
                },
            },
            ColumnarValue::Array(values) if is_text(values.data_type()) => {
                Self::Each(cast(&length(values.as_ref())?, &DataType::Int64)?.as_primitive().clone())
            }
            ColumnarValue::Array(values) if values.data_type().is_integer() => {
                Self::Each(cast(values, &DataType::Int64)?.as_primitive().clone())
            }
            ColumnarValue::Array(_) => Self::Same(0),
        })
    }

    fn at(&self, row: usize) -> u64 {
        match self {
            Self::Same(size) => *size,
            Self::Each(sizes) if sizes.is_null(row) => 0,
            Self::Each(sizes) => u64::try_from(sizes.value(row)).unwrap_or(0),
        }
    }
}
