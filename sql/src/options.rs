//! Named options of AI functions: `ai_classify(text, labels, on_error => 'error')`.
//!
//! The planner knows positions only, so names are carried through it as an argument of their own: a struct
//! that [`name_options`] puts in their place while the statement is still text.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Statement, Value, VisitMut,
    VisitorMut,
};

/// Begins the name that carries options through the planner.
const CARRIER: &str = "relserve_option";

/// Functions that texts are looked up or made vectors for.
const NO_MODEL: [&str; 3] = ["ai_embed", "ai_similarity", "ai_retrieve"];

/// Functions whose answer is one of a list, so that it has a probability.
const OF_A_LIST: [&str; 5] = ["ai_if", "ai_classify", "ai_score", "ai_rate", "ai_sentiment"];

/// What a failed row becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OnError {
    /// NULL, and a notice.
    #[default]
    Null,
    /// The query fails.
    Error,
}

/// The options of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallOptions {
    pub on_error: OnError,
    /// The model that is asked, where the session's is not meant.
    pub model: Option<String>,
    /// JSON Schema of the answer.
    pub schema: Option<String>,
    /// Most tokens of the answer, where the function's own limit is not meant.
    pub max_tokens: Option<u64>,
}

/// A statement whose named options travel as arguments.
pub fn name_options(statement: &mut Statement) {
    struct Names;
    impl VisitorMut for Names {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
            if let ast::Expr::Function(function) = expr
                && function.name.to_string().to_ascii_lowercase().starts_with("ai_")
                && let FunctionArguments::List(list) = &mut function.args
            {
                // The type of what a call gives depends on these, so that each makes it another function.
                let name = function.name.to_string().to_ascii_lowercase();
                if name == "ai_classify" && take_flag(&mut list.args, "multi") {
                    function.name = ObjectName::from(vec![Ident::new("ai_classify_many")]);
                } else if OF_A_LIST.contains(&&*name) && take_flag(&mut list.args, "probability") {
                    function.name = ObjectName::from(vec![Ident::new(format!("{name}_probability"))]);
                }
                for arg in &mut list.args {
                    if let Some((name, value)) = named(arg) {
                        *arg = FunctionArg::Unnamed(FunctionArgExpr::Expr(carrier(&name, value.clone())));
                    }
                }
            }
            ControlFlow::Continue(())
        }
    }
    let _ = statement.visit(&mut Names);
}

/// The name and the value of a named argument.
fn named(arg: &FunctionArg) -> Option<(String, &ast::Expr)> {
    match arg {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
            Some((name.value.to_ascii_lowercase(), value))
        }
        FunctionArg::ExprNamed {
            name: ast::Expr::Identifier(name),
            arg: FunctionArgExpr::Expr(value),
            ..
        } => Some((name.value.to_ascii_lowercase(), value)),
        _ => None,
    }
}

/// Takes `flag => true` or `false` out of a call's arguments.
fn take_flag(args: &mut Vec<FunctionArg>, flag: &str) -> bool {
    let mut is_set = false;
    args.retain(|arg| match named(arg) {
        Some((name, ast::Expr::Value(value))) if name == flag => match value.value {
            Value::Boolean(given) => {
                is_set = given;
                false
            }
            _ => true,
        },
        _ => true,
    });
    is_set
}

fn carrier(name: &str, value: ast::Expr) -> ast::Expr {
    let unnamed = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    let name = ast::Expr::Value(Value::SingleQuotedString(name.to_owned()).into());
    ast::Expr::Function(ast::Function {
        name: ObjectName::from(vec![Ident::new(CARRIER)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![unnamed(name), unnamed(value)],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The function that carries an option.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Carrier {
    signature: Signature,
}

/// The carrier for a session.
pub fn function() -> ScalarUDF {
    ScalarUDF::from(Carrier { signature: Signature::any(2, Volatility::Stable) })
}

impl ScalarUDFImpl for Carrier {
    fn name(&self) -> &str {
        CARRIER
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("a named option (name => value) belongs to an AI function")
    }
}

/// Whether an argument of a call is a named option.
pub fn is_option(argument: &Expr) -> bool {
    matches!(argument, Expr::ScalarFunction(call) if call.func.name() == CARRIER)
}

impl CallOptions {
    /// Parts a call's arguments into values and options.
    pub fn take(function: &str, arguments: &[Expr]) -> Result<(Vec<Expr>, Self)> {
        let mut options = Self::default();
        let mut values = Vec::new();
        for argument in arguments {
            match argument {
                Expr::ScalarFunction(call) if call.func.name() == CARRIER => {
                    options.set(function, &call.args)?;
                }
                value => values.push(value.clone()),
            }
        }
        Ok((values, options))
    }

    fn set(&mut self, function: &str, pair: &[Expr]) -> Result<()> {
        let [name, value] = pair else { return plan_err!("{function}: an option has a name and a value") };
        let Some(name) = text(name) else { return plan_err!("{function}: an option's name must be text") };
        match (name, value) {
            ("on_error", value) => match text(value) {
                Some("null") => self.on_error = OnError::Null,
                Some("error") => self.on_error = OnError::Error,
                _ => return plan_err!("{function}: on_error must be 'null' or 'error'"),
            },
            ("model", _) if NO_MODEL.contains(&function) => {
                return plan_err!(
                    "{function}: no language model answers it, so that it has no option `model`"
                );
            }
            ("model", value) => match text(value).filter(|name| !name.is_empty()) {
                Some(name) => self.model = Some(name.to_owned()),
                None => return plan_err!("{function}: model must be the name of a model as text"),
            },
            ("schema", value) if matches!(function, "ai_complete" | "ai_extract") => match text(value) {
                Some(schema) => self.schema = Some(schema.to_owned()),
                None => return plan_err!("{function}: schema must be a JSON Schema as text"),
            },
            ("max_tokens", value) if matches!(function, "ai_ask" | "ai_complete" | "ai_summarize") => {
                match number(value) {
                    Some(tokens) if tokens > 0 => self.max_tokens = Some(tokens),
                    _ => return plan_err!("{function}: max_tokens must be a positive whole number"),
                }
            }
            ("probability", _) if OF_A_LIST.contains(&function) => {
                return plan_err!("{function}: probability must be true or false");
            }
            (name, _) => {
                return plan_err!(
                    "{function}: has no option `{name}`; there are: on_error (all), model (all that ask one), multi => true (ai_classify), \
                     probability => true (ai_if, ai_classify, ai_score, ai_rate and ai_sentiment), \
                     schema (ai_complete and ai_extract), max_tokens (ai_ask, ai_complete and ai_summarize)"
                );
            }
        }
        Ok(())
    }
}

/// The value of a literal whole number that is not negative.
fn number(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Literal(value, _) => value.to_string().parse().ok(),
        Expr::Cast(cast) => number(&cast.expr),
        _ => None,
    }
}

/// The text of a literal.
pub fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        Expr::Cast(cast) => text(&cast.expr),
        Expr::Alias(alias) => text(&alias.expr),
        _ => None,
    }
}
