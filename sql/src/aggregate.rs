//! `ai_agg(x, instruction)` and `ai_summarize_agg(x)`: names of aggregates until they are lifted. What runs is
//! `array_agg`, and a call over its list.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, not_impl_err};
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility};

use crate::function::Function;

/// An aggregate as a plan has it before it is lifted.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Marker {
    function: Function,
    signature: Signature,
}

impl AggregateUDFImpl for Marker {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.function.output().data_type())
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        not_impl_err!("{}: cannot be called in this place", self.function.name)
    }
}

/// The aggregates for a session.
pub(crate) fn markers() -> Vec<AggregateUDF> {
    let one = |function| {
        AggregateUDF::from(Marker { function, signature: Signature::variadic_any(Volatility::Stable) })
    };
    Function::aggregates().map(one).collect()
}

/// An AI aggregate: the function, the list it needs, and the arguments after the data.
pub(crate) struct Lifted {
    pub(crate) function: Function,
    /// `array_agg` of the data, with the call's filter and order.
    pub(crate) list: Expr,
    pub(crate) rest: Vec<Expr>,
}

/// The AI function that an aggregate calls.
pub(crate) fn called(expr: &Expr) -> Option<Function> {
    match expr {
        Expr::AggregateFunction(call) => {
            call.func.inner().downcast_ref::<Marker>().map(|marker| marker.function)
        }
        _ => None,
    }
}

/// Takes an AI aggregate apart; anything else is given back.
pub(crate) fn lift(expr: Expr) -> Result<Lifted, Expr> {
    match (called(&expr), expr) {
        (Some(function), Expr::AggregateFunction(AggregateFunction { mut params, .. }))
            if !params.args.is_empty() =>
        {
            let rest = params.args.split_off(1);
            let list = Expr::AggregateFunction(AggregateFunction { func: array_agg_udaf(), params });
            Ok(Lifted { function, list, rest })
        }
        (_, expr) => Err(expr),
    }
}
