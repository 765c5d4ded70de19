//! Statements that nest deeply. An expression is walked, copied and dropped by recursion, as deep as its operators are
//! many: so these are bounded, and what walks them has a large stack.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use futures_util::Stream;

/// Operators within one pair of parentheses and between commas: each may nest the expression once more.
const OPERATORS_MAX: usize = 1_000;

/// Less of the stack than this is not enough for a statement as complex as is allowed.
const STACK_MIN_BYTES: usize = 8 * 1024 * 1024;
/// What it gets then.
const STACK_BYTES: usize = 32 * 1024 * 1024;

/// A statement that would nest beyond what a stack holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("statement is too complex: more than {OPERATORS_MAX} operators in one expression")]
pub(crate) struct TooComplex;

/// Refuses chains of operators that would nest an expression or a query beyond what a stack holds.
pub(crate) fn check<'a>(tokens: impl IntoIterator<Item = &'a Token>) -> Result<(), TooComplex> {
    // Operators so far, per open parenthesis.
    let mut counts = vec![0];
    for token in tokens {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                // A chain of calls and subscripts nests too: `a[1][1]`.
                count(&mut counts)?;
                counts.push(0);
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                counts.pop();
                if counts.is_empty() {
                    counts.push(0);
                }
            }
            Token::Comma => {
                if let Some(last) = counts.last_mut() {
                    *last = 0;
                }
            }
            Token::Word(word) if word.quote_style.is_none() && nests(word.keyword) => count(&mut counts)?,
            Token::Word(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::DollarQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::Placeholder(_)
            | Token::Whitespace(_)
            | Token::EOF
            | Token::Period => {}
            _ => count(&mut counts)?,
        }
    }
    Ok(())
}

/// The same of a text. One that is no statement is the parser's to refuse.
pub(crate) fn check_text(text: &str) -> Result<(), TooComplex> {
    Tokenizer::new(&PostgreSqlDialect {}, text).tokenize().map_or(Ok(()), |tokens| check(&tokens))
}

fn count(counts: &mut [usize]) -> Result<(), TooComplex> {
    let Some(last) = counts.last_mut() else { return Ok(()) };
    *last += 1;
    if *last > OPERATORS_MAX { Err(TooComplex) } else { Ok(()) }
}

/// Keywords that are operators, or join what is before them with what is behind.
fn nests(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::AND
            | Keyword::OR
            | Keyword::NOT
            | Keyword::IS
            | Keyword::NOTNULL
            | Keyword::LIKE
            | Keyword::ILIKE
            | Keyword::SIMILAR
            | Keyword::BETWEEN
            | Keyword::IN
            | Keyword::AT
            | Keyword::COLLATE
            | Keyword::UNION
            | Keyword::EXCEPT
            | Keyword::INTERSECT
            | Keyword::JOIN
            | Keyword::CASE
            | Keyword::EXPLAIN
            | Keyword::PREPARE
    )
}

fn grown<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_MIN_BYTES, STACK_BYTES, work)
}

/// Runs a future where expressions that are nested as deeply as is allowed may be walked by recursion.
pub(crate) async fn on_a_large_stack<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|context| grown(|| future.as_mut().poll(context))).await
}

/// The same for the rows of a statement.
pub(crate) struct OnALargeStack(pub(crate) SendableRecordBatchStream);

impl Stream for OnALargeStack {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        grown(|| self.0.as_mut().poll_next(context))
    }
}

impl RecordBatchStream for OnALargeStack {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}
