//! Grammars in EBNF (`root ::= ..`), as xgrammar and llama.cpp (GBNF) read them, put into the notation of Lark.
//!
//! EBNF says which characters follow which, and no lexer comes first: so every terminal is one character. A literal that
//! were one would be preferred to all shorter ones, and texts that the grammar has would be refused.

use std::collections::HashMap;
use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

use base::ConstraintError;

/// Repetitions of one item that are asked for by number.
const TIMES_MAX: u32 = 2_000;

/// The same grammar in the notation of Lark.
pub(super) fn to_lark(ebnf: &str) -> Result<String, ConstraintError> {
    let mut lark = Translation::default();
    let mut text = GrammarText { rest: ebnf.chars().peekable(), line: 1 };
    text.skip_blanks();
    while text.peek().is_some() {
        lark.rule(&mut text)?;
    }
    lark.whole()
}

/// What is left of the grammar's text.
struct GrammarText<'a> {
    rest: Peekable<Chars<'a>>,
    line: u32,
}

impl GrammarText<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += u32::from(next == Some('\n'));
        next
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.next();
        }
        is_there
    }

    /// White space, new lines and comments.
    fn skip_blanks(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.next();
                }
            } else if c.is_whitespace() {
                self.next();
            } else {
                break;
            }
        }
    }

    /// A rule's name.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || *c == '_' || *c == '-') {
            name.push(c);
            self.next();
        }
        self.skip_blanks();
        (!name.is_empty()).then_some(name)
    }

    /// Whether `name ::=` comes next: a rule ends there, on whatever line.
    fn begins_rule(&self) -> bool {
        let mut ahead = GrammarText { rest: self.rest.clone(), line: 0 };
        ahead.name().is_some() && "::=".chars().all(|c| ahead.take(c))
    }

    fn error<T>(&self, reason: impl std::fmt::Display) -> Result<T, ConstraintError> {
        Err(ConstraintError(format!("line {}: {reason}", self.line)))
    }

    /// What is behind a backslash.
    fn escaped(&mut self) -> Result<char, ConstraintError> {
        let digits = match self.next() {
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some(c @ ('\\' | '"' | '\'' | '[' | ']' | '-' | '^' | '/')) => return Ok(c),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some(c) => return self.error(format_args!("`\\{c}` is no escape")),
            None => return self.error("ends behind a backslash"),
        };
        let mut value = 0;
        for _ in 0..digits {
            let Some(digit) = self.next().and_then(|c| c.to_digit(16)) else {
                return self.error(format_args!("an escape needs {digits} hexadecimal digits"));
            };
            value = value << 4 | digit;
        }
        match char::from_u32(value) {
            Some(c) => Ok(c),
            None => self.error(format_args!("U+{value:X} is no character")),
        }
    }

    /// The next character of what ends with `end`; nothing at that.
    fn char_before(&mut self, end: char) -> Result<Option<char>, ConstraintError> {
        match self.next() {
            Some(c) if c == end => Ok(None),
            Some('\\') => self.escaped().map(Some),
            Some(c) => Ok(Some(c)),
            None => self.error(format_args!("`{end}` is missing")),
        }
    }
}

/// Rules and terminals in the notation of Lark. Both have names of our own: there the first letter's case has a meaning.
#[derive(Default)]
struct Translation {
    lark: String,
    /// Numbers of rules by name, and whether they have been given.
    rules: HashMap<String, (usize, bool)>,
    /// Numbers of terminals by their regular expression.
    terminals: HashMap<String, usize>,
}

impl Translation {
    fn rule(&mut self, text: &mut GrammarText<'_>) -> Result<(), ConstraintError> {
        let Some(name) = text.name().filter(|_| "::=".chars().all(|c| text.take(c))) else {
            return text.error("a rule must begin with its name and `::=`");
        };
        let number = self.number(&name);
        if self.rules.insert(name.clone(), (number, true)).is_some_and(|(_, is_given)| is_given) {
            return text.error(format_args!("rule `{name}` is there twice"));
        }
        self.add(format_args!("r{number}:"));
        self.alternatives(text)?;
        match text.peek() {
            None => {}
            Some(_) if text.begins_rule() => {}
            Some(c) => return text.error(format_args!("`{c}` has no place here")),
        }
        self.lark.push('\n');
        Ok(())
    }

    /// Sequences, with `|` between.
    fn alternatives(&mut self, text: &mut GrammarText<'_>) -> Result<(), ConstraintError> {
        loop {
            text.skip_blanks();
            let begin = self.lark.len();
            while self.item(text)? {
                self.times(text)?;
            }
            if self.lark.len() == begin {
                self.lark.push_str(" \"\"");
            }
            if !text.take('|') {
                return Ok(());
            }
            self.lark.push_str(" |");
        }
    }

    /// What may be repeated; false where a sequence ends.
    fn item(&mut self, text: &mut GrammarText<'_>) -> Result<bool, ConstraintError> {
        match text.peek() {
            Some('"') => {
                text.next();
                // In brackets: what is repeated is all of it.
                self.lark.push_str(" (");
                let begin = self.lark.len();
                while let Some(c) = text.char_before('"')? {
                    self.terminal(one(c));
                }
                if self.lark.len() == begin {
                    self.lark.push_str("\"\"");
                }
                self.lark.push(')');
            }
            Some('[') => {
                text.next();
                let class = class(text)?;
                self.terminal(class);
            }
            Some('.') => {
                text.next();
                self.terminal("(?s:.)".into());
            }
            Some('(') => {
                text.next();
                if text.peek() == Some('=') {
                    return text.error("looks ahead (`(= ..)`), which is not supported");
                }
                self.lark.push_str(" (");
                self.alternatives(text)?;
                if !text.take(')') {
                    return text.error("`)` is missing");
                }
                self.lark.push(')');
            }
            Some(c) if (c.is_ascii_alphanumeric() || c == '_' || c == '-') && !text.begins_rule() => {
                let number = self.number(&text.name().unwrap_or_default());
                self.add(format_args!(" r{number}"));
            }
            _ => return Ok(false),
        }
        text.skip_blanks();
        Ok(true)
    }

    /// How often the item before is there.
    fn times(&mut self, text: &mut GrammarText<'_>) -> Result<(), ConstraintError> {
        match text.peek() {
            Some(c @ ('?' | '*' | '+')) => {
                text.next();
                self.lark.push(c);
            }
            Some('{') => {
                text.next();
                let least = number(text)?;
                let (comma, most) = (text.take(','), number(text)?);
                if !text.take('}') || (least.is_none() && most.is_none()) {
                    return text.error("repetitions must be `{m}`, `{m,}`, `{,n}` or `{m,n}`");
                }
                let least = least.unwrap_or(0);
                let Some(most) = most.or((!comma).then_some(least)) else {
                    self.add(format_args!("{{{least},}}"));
                    text.skip_blanks();
                    return Ok(());
                };
                if least > most {
                    return text.error(format_args!("{least} to {most} repetitions are none"));
                }
                self.add(format_args!("{{{least},{most}}}"));
            }
            _ => return Ok(()),
        }
        text.skip_blanks();
        Ok(())
    }

    /// A rule's number, which it has from where it is first named.
    fn number(&mut self, name: &str) -> usize {
        let next = self.rules.len();
        self.rules.entry(name.to_owned()).or_insert((next, false)).0
    }

    fn terminal(&mut self, regex: String) {
        let next = self.terminals.len();
        let number = *self.terminals.entry(regex).or_insert(next);
        self.add(format_args!(" C{number}"));
    }

    fn add(&mut self, what: std::fmt::Arguments<'_>) {
        self.lark.write_fmt(what).expect("a string takes all");
    }

    /// All of it, from `root` on.
    fn whole(mut self) -> Result<String, ConstraintError> {
        let missing = self.rules.iter().filter(|(_, (_, is_given))| !is_given).map(|(name, _)| name).min();
        if let Some(name) = missing {
            return Err(ConstraintError(format!("rule `{name}` is named and not there")));
        }
        let Some(&(root, _)) = self.rules.get("root") else {
            return Err(ConstraintError("has no rule `root`".into()));
        };
        let terminals: Vec<(String, usize)> = self.terminals.drain().collect();
        for (regex, number) in terminals {
            self.add(format_args!("C{number}: /{regex}/\n"));
        }
        Ok(format!("start: r{root}\n{}", self.lark))
    }
}

/// A character as a regular expression.
fn one(c: char) -> String {
    format!("\\x{{{:x}}}", u32::from(c))
}

/// The class whose `[` has been read, as a regular expression.
fn class(text: &mut GrammarText<'_>) -> Result<String, ConstraintError> {
    let mut regex = String::from(if text.take('^') { "[^" } else { "[" });
    let begin = regex.len();
    // An escaped character is never a sign.
    while let Some(first) = text.char_before(']')? {
        regex += &one(first);
        let mut ahead = text.rest.clone();
        if ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']') {
            text.next();
            let Some(last) = text.char_before(']')? else { break };
            if last < first {
                return text.error(format_args!("`{first}-{last}` holds no character"));
            }
            regex += &format!("-{}", one(last));
        }
    }
    if regex.len() == begin {
        return text.error("a class of characters is empty");
    }
    regex.push(']');
    Ok(regex)
}

/// A number in a repetition, where one is there.
fn number(text: &mut GrammarText<'_>) -> Result<Option<u32>, ConstraintError> {
    text.skip_blanks();
    let mut digits = String::new();
    while let Some(c) = text.peek().filter(char::is_ascii_digit) {
        digits.push(c);
        text.next();
    }
    text.skip_blanks();
    if digits.is_empty() {
        return Ok(None);
    }
    match digits.parse() {
        Ok(number) if number <= TIMES_MAX => Ok(Some(number)),
        _ => text.error(format_args!("{digits} repetitions; at most {TIMES_MAX} are allowed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_grammar_is_refused_by_what_is_wrong() {
        for (ebnf, expected) in [
            ("root ::= missing", "`missing` is named and not there"),
            ("first ::= \"a\"", "no rule `root`"),
            ("root ::= \"a\"\nroot ::= \"b\"", "line 2: rule `root` is there twice"),
            ("root ::= (\"a\"", "`)` is missing"),
            ("root ::= \"a", "`\"` is missing"),
            ("root ::= [a", "`]` is missing"),
            ("root ::= []", "is empty"),
            ("root ::= [z-a]", "holds no character"),
            ("root ::= \"\\q\"", "`\\q` is no escape"),
            ("root ::= \"\\u12\"", "4 hexadecimal"),
            ("root ::= \"\\ud800\"", "no character"),
            ("root ::= \"a\"{3,2}", "3 to 2"),
            ("root ::= \"a\"{,}", "`{m,n}`"),
            ("root ::= \"a\"{2001}", "at most 2000"),
            ("root ::= \"a\" (=\"b\")", "looks ahead"),
            ("root ::= \"a\" ]", "`]` has no place"),
            ("root: \"a\"", "name and `::=`"),
        ] {
            let error = to_lark(ebnf).expect_err(ebnf);
            assert!(error.to_string().contains(expected), "{error} for {ebnf}");
        }
    }
}
