//! Plain predicates as text for a database: comparisons, AND, OR, NOT, IN, IS NULL, LIKE and BETWEEN over
//! columns and literals.
//!
//! Anything else stays in the plan, functions above all: a database knows no AI function, and another
//! function may mean something else to it. Values are parameters, never text; a predicate is given to the
//! database only where it keeps exactly the rows that the plan would.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Like, Operator};

use super::SourceDialect;
use super::column::{Comparability, Kind, SourceColumn};

/// Levels of a predicate; databases bound the depth of their expressions.
const DEPTH_MAX: usize = 50;
/// Parameters of one predicate; databases bound those of a statement.
const PARAMETERS_MAX: usize = 500;
/// Bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 4_096;

/// A parameter of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Parameter {
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// Writes predicates over a table's columns.
pub(super) struct Writer<'a> {
    pub(super) dialect: &'a dyn SourceDialect,
    pub(super) columns: &'a [SourceColumn],
    pub(super) parameters: Vec<Parameter>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(dialect: &'a dyn SourceDialect, columns: &'a [SourceColumn]) -> Self {
        Self { dialect, columns, parameters: Vec::new() }
    }

    /// The predicate as text; `None`, and no parameters more, where it is not a plain one.
    pub(super) fn predicate(&mut self, expr: &Expr) -> Option<String> {
        let before = self.parameters.len();
        let written =
            self.write(expr, DEPTH_MAX).filter(|_| self.parameters.len() - before <= PARAMETERS_MAX);
        if written.is_none() {
            self.parameters.truncate(before);
        }
        written
    }

    fn write(&mut self, expr: &Expr, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        match expr {
            Expr::Column(_) => {
                let column = self.column(expr)?;
                (column.kind == Kind::Boolean && column.comparison == Comparability::Plain)
                    .then(|| self.dialect.truth(column))
            }
            Expr::Not(inner) => Some(format!("(NOT {})", self.write(inner, depth)?)),
            Expr::IsNull(inner) => {
                Some(format!("({} IS NULL)", self.dialect.name(&self.column(inner)?.name)))
            }
            Expr::IsNotNull(inner) => {
                Some(format!("({} IS NOT NULL)", self.dialect.name(&self.column(inner)?.name)))
            }
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                let (left, right) = (self.write(left, depth)?, self.write(right, depth)?);
                Some(format!("({left} {op} {right})"))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => self.compare(left, *op, right),
            Expr::InList(list) => self.list(list),
            Expr::Between(between) => self.between(between),
            Expr::Like(like) => self.like(like),
            _ => None,
        }
    }

    fn column(&self, expr: &Expr) -> Option<&'a SourceColumn> {
        let Expr::Column(column) = expr else { return None };
        self.columns.iter().find(|known| known.name == column.name)
    }

    /// A column where it is compared. `ordered`: with `<` and the like.
    fn operand(&self, column: &SourceColumn, ordered: bool) -> Option<String> {
        (column.comparison != Comparability::Unknown).then(|| self.dialect.operand(column, ordered))
    }

    /// A literal that is compared with a column.
    fn literal(&mut self, expr: &Expr, column: &SourceColumn) -> Option<String> {
        let Expr::Literal(value, _) = expr else { return None };
        // A literal of another type is not compared as it stands here.
        if value.is_null() || value.data_type() != column.kind.data_type() {
            return None;
        }
        let parameter = parameter(value)?;
        self.parameters.push(parameter);
        Some(self.dialect.parameter(self.parameters.len(), column.kind))
    }

    fn compare(&mut self, left: &Expr, op: Operator, right: &Expr) -> Option<String> {
        let (symbol, ordered) = match op {
            Operator::Eq => ("=", false),
            Operator::NotEq => ("<>", false),
            Operator::Lt => ("<", true),
            Operator::LtEq => ("<=", true),
            Operator::Gt => (">", true),
            Operator::GtEq => (">=", true),
            _ => return None,
        };
        match (self.column(left), self.column(right)) {
            (Some(left), Some(right)) => {
                let alike = left.kind == right.kind && left.comparison == right.comparison;
                // Two columns may differ in their collations, so that the database cannot choose one.
                if !alike || left.comparison == Comparability::Collated {
                    return None;
                }
                Some(format!("({} {symbol} {})", self.operand(left, ordered)?, self.operand(right, ordered)?))
            }
            (Some(column), None) => {
                let (operand, literal) = (self.operand(column, ordered)?, self.literal(right, column)?);
                Some(format!("({operand} {symbol} {literal})"))
            }
            (None, Some(column)) => {
                let (operand, literal) = (self.operand(column, ordered)?, self.literal(left, column)?);
                Some(format!("({literal} {symbol} {operand})"))
            }
            (None, None) => None,
        }
    }

    fn list(&mut self, InList { expr, list, negated }: &InList) -> Option<String> {
        let column = self.column(expr)?;
        let operand = self.operand(column, false)?;
        if list.is_empty() || list.len() > PARAMETERS_MAX {
            return None;
        }
        let items: Option<Vec<String>> = list.iter().map(|item| self.literal(item, column)).collect();
        let not = if *negated { "NOT " } else { "" };
        Some(format!("({operand} {not}IN ({}))", items?.join(", ")))
    }

    fn between(&mut self, Between { expr, negated, low, high }: &Between) -> Option<String> {
        let column = self.column(expr)?;
        let operand = self.operand(column, true)?;
        let (low, high) = (self.literal(low, column)?, self.literal(high, column)?);
        let not = if *negated { "NOT " } else { "" };
        Some(format!("({operand} {not}BETWEEN {low} AND {high})"))
    }

    fn like(&mut self, like: &Like) -> Option<String> {
        let column = self.column(&like.expr)?;
        let Expr::Literal(ScalarValue::Utf8(Some(pattern)), _) = &*like.pattern else { return None };
        let is_plain = column.kind == Kind::Text && like.escape_char.is_none() && !like.case_insensitive;
        // An escape means nothing to one side and something to the other.
        if !is_plain || pattern.contains('\\') || pattern.len() > PATTERN_BYTES_MAX {
            return None;
        }
        let operand = self.operand(column, true)?;
        let (operator, pattern) = self.dialect.like(pattern);
        self.parameters.push(Parameter::Text(pattern));
        let parameter = self.dialect.parameter(self.parameters.len(), Kind::Text);
        let not = if like.negated { "NOT " } else { "" };
        Some(format!("({operand} {not}{operator} {parameter})"))
    }
}

/// A literal as a parameter. Those that databases read and order in ways of their own are none.
fn parameter(value: &ScalarValue) -> Option<Parameter> {
    Some(match value {
        ScalarValue::Boolean(Some(value)) => Parameter::Boolean(*value),
        ScalarValue::Int16(Some(value)) => Parameter::Integer((*value).into()),
        ScalarValue::Int32(Some(value)) => Parameter::Integer((*value).into()),
        ScalarValue::Int64(Some(value)) => Parameter::Integer(*value),
        ScalarValue::Float32(Some(value)) if value.is_finite() => Parameter::Float((*value).into()),
        ScalarValue::Float64(Some(value)) if value.is_finite() => Parameter::Float(*value),
        // A text with a NUL cannot be sent to every database.
        ScalarValue::Utf8(Some(value)) if !value.contains('\0') => Parameter::Text(value.clone()),
        ScalarValue::Binary(Some(value)) => Parameter::Bytes(value.clone()),
        ScalarValue::Decimal128(Some(_), ..)
        | ScalarValue::Date32(Some(_))
        | ScalarValue::TimestampMicrosecond(Some(_), _) => Parameter::Text(shown(value)?),
        _ => return None,
    })
}

/// A number or an instant as both sides write it.
fn shown(value: &ScalarValue) -> Option<String> {
    let text = value.cast_to(&datafusion::arrow::datatypes::DataType::Utf8).ok()?;
    let ScalarValue::Utf8(Some(text)) = text else { return None };
    // Years beyond four digits have a sign, which databases do not read.
    let is_decimal = matches!(value, ScalarValue::Decimal128(..));
    (is_decimal || text.as_bytes().get(4) == Some(&b'-') && !text.starts_with(['-', '+'])).then_some(text)
}
