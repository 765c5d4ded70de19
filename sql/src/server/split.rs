//! A text as statements, before any of them is parsed: each with its own text, and none too complex.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace};

use super::error::{SqlError, code};
use crate::complexity;

/// A statement's text, and the words that it begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    /// The text with the comments before it: tools say there what they are up to.
    pub(super) written: &'a str,
    /// The first words, upper case.
    pub(super) words: Vec<String>,
}

/// Words that are kept of each statement.
const WORDS: usize = 3;

/// Parts a text at its semicolons. What holds only blanks and comments is no statement.
pub(super) fn split(text: &str) -> Result<Vec<Piece<'_>>, SqlError> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text)
        .tokenize_with_location()
        .map_err(|error| SqlError::new(code::SYNTAX, format!("syntax error: {error}")))?;
    let mut places = Places { text, offset: 0, at: Location { line: 1, column: 1 } };
    let mut pieces = Vec::new();
    let (mut start, mut comment) = (None, None);
    let mut statement: Vec<&TokenWithSpan> = Vec::new();
    for token in &tokens {
        match &token.token {
            Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_)) => {
                if start.is_none() && comment.is_none() {
                    comment = Some(places.offset(token.span.start));
                }
            }
            Token::Whitespace(_) | Token::EOF => {}
            Token::SemiColon => {
                let end = places.offset(token.span.start);
                pieces.extend(piece(text, (comment.take(), start.take()), end, &statement)?);
                statement.clear();
            }
            _ => {
                if start.is_none() {
                    start = Some(places.offset(token.span.start));
                }
                statement.push(token);
            }
        }
    }
    pieces.extend(piece(text, (comment, start), text.len(), &statement)?);
    Ok(pieces)
}

fn piece<'a>(
    text: &'a str,
    (comment, start): (Option<usize>, Option<usize>),
    end: usize,
    tokens: &[&TokenWithSpan],
) -> Result<Option<Piece<'a>>, SqlError> {
    let Some(start) = start else { return Ok(None) };
    complexity::check(tokens.iter().map(|token| &token.token)).map_err(|error| {
        SqlError::new(code::TOO_COMPLEX, error.to_string())
            .with_hint("Write long lists of alternatives as IN (..) or as a join with VALUES.")
    })?;
    let words = tokens.iter().map_while(|token| match &token.token {
        Token::Word(word) => Some(word.value.to_ascii_uppercase()),
        _ => None,
    });
    let written = text[comment.unwrap_or(start)..end].trim_end();
    Ok(Some(Piece { text: text[start..end].trim_end(), written, words: words.take(WORDS).collect() }))
}

/// Byte offsets of the tokenizer's lines and columns, which come in order.
struct Places<'a> {
    text: &'a str,
    offset: usize,
    at: Location,
}

impl Places<'_> {
    fn offset(&mut self, target: Location) -> usize {
        let mut chars = self.text[self.offset..].chars();
        while (self.at.line, self.at.column) < (target.line, target.column) {
            let Some(next) = chars.next() else { break };
            self.offset += next.len_utf8();
            if next == '\n' {
                self.at = Location { line: self.at.line + 1, column: 1 };
            } else {
                self.at.column += 1;
            }
        }
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        split(text).unwrap().into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn statements_are_parted_at_semicolons_outside_of_texts() {
        assert_eq!(texts("SELECT ';'; -- one; comment\n  SELECT $$;$$ ;;"), ["SELECT ';'", "SELECT $$;$$"]);
        assert_eq!(texts("SELECT 'ä\n;', \"é;\";SELECT 2"), ["SELECT 'ä\n;', \"é;\"", "SELECT 2"]);
        assert_eq!(texts(" ; -- ping\n /* a */ ;"), Vec::<&str>::new());
    }

    #[test]
    fn a_statement_is_known_with_the_comments_before_it() {
        let pieces = split("/* a */ -- b\n SELECT 1; SELECT 2 -- c\n; -- d\n;").unwrap();
        let written: Vec<&str> = pieces.iter().map(|piece| piece.written).collect();
        assert_eq!(written, ["/* a */ -- b\n SELECT 1", "SELECT 2 -- c"]);
        assert_eq!(pieces[0].text, "SELECT 1");
    }

    #[test]
    fn the_first_words_are_known() {
        let pieces = split("reset all; copy (select 1) to stdout").unwrap();
        assert_eq!(pieces[0].words, ["RESET", "ALL"]);
        assert_eq!(pieces[1].words, ["COPY"]);
    }

    #[test]
    fn long_chains_are_refused_and_long_lists_are_not() {
        let refused = [
            format!("SELECT 1{}", "+1".repeat(2_000)),
            format!("SELECT {}1", "NOT ".repeat(2_000)),
            format!("SELECT (1){}", "+(1)".repeat(2_000)),
            format!("SELECT 1 {}", "UNION ALL SELECT 1 ".repeat(2_000)),
            format!("SELECT a{} FROM t", "[1]".repeat(2_000)),
        ];
        for text in refused {
            assert_eq!(split(&text).map_err(|error| error.code), Err(code::TOO_COMPLEX), "{}", &text[..30]);
        }
        let list = format!("SELECT * FROM t WHERE a IN (0{})", ",1".repeat(5_000));
        assert_eq!(split(&list).unwrap().len(), 1);
    }
}
