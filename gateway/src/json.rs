//! Strict JSON: what the edge accepts before any field is looked at.
//!
//! `serde_json` refuses deep nesting, lone surrogates and invalid UTF-8 with a position. This module
//! adds what it lets pass (a key twice in one object, a NUL in a string) and reads fields one by one, so that
//! every error names the field. It must not know what the fields mean.

#[cfg(test)]
pub(crate) mod asked;

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serving::error::RequestError;

/// Parses a body that must be one JSON object.
pub fn object(body: &[u8]) -> Result<JsonFields, RequestError> {
    match value(body)? {
        Value::Object(map) => Ok(JsonFields { path: String::new(), map }),
        _ => Err(RequestError::Malformed("the body must be an object".into())),
    }
}

/// A mark that some editors and programs write at the start of a text.
pub const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Parses strict JSON. A byte order mark in front is left out, as RFC 8259 allows.
pub fn value(body: &[u8]) -> Result<Value, RequestError> {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(RequestError::Malformed("the body is empty".into()));
    }
    let Strict(value) =
        serde_json::from_slice(body).map_err(|error| RequestError::Malformed(error.to_string()))?;
    match rounded(body) {
        Some((path, digits)) => {
            let is_data = path
                .iter()
                .any(|step| matches!(step, PathStep::Key(key) if DATA.iter().any(|one| one == key)));
            let reason = match (is_data, digits.starts_with('-')) {
                (true, _) => {
                    format!("the integer {digits} has more digits than a number keeps: send it as a string")
                }
                (false, true) => format!("the number {digits} is too small"),
                (false, false) => format!("the number {digits} is too large"),
            };
            Err(RequestError::invalid(name_of(&path), reason))
        }
        None => Ok(value),
    }
}

/// Fields whose values may be strings wherever they may be numbers, or are strings alone.
const DATA: [&[u8]; 4] = [b"args", b"documents", b"metadata", b"rows"];

/// A step of the way to a value: a key of an object, or an index of an array.
enum PathStep<'a> {
    Key(&'a [u8]),
    Index(usize),
}

/// How errors name a field: `rows[0].id`.
fn name_of(path: &[PathStep<'_>]) -> String {
    path.iter().fold(String::new(), |name, step| match step {
        PathStep::Key(key) if name.is_empty() => String::from_utf8_lossy(key).into_owned(),
        PathStep::Key(key) => format!("{name}.{}", String::from_utf8_lossy(key)),
        PathStep::Index(index) => format!("{name}[{index}]"),
    })
}

/// The first integer of valid JSON that no 64 bits hold, and where it stands. A parser makes a fraction of
/// it, whose last digits are others, and a cell would say those.
fn rounded(body: &[u8]) -> Option<(Vec<PathStep<'_>>, &str)> {
    let (mut rest, mut path) = (body, Vec::new());
    while let Some(first) = rest.first() {
        let length = match first {
            b'"' => {
                let (text, behind) = rest.split_at(text_length(rest));
                if behind.trim_ascii_start().first() == Some(&b':')
                    && let Some(step) = path.last_mut()
                {
                    *step = PathStep::Key(&text[1..text.len() - 1]);
                }
                text.len()
            }
            b'-' | b'0'..=b'9' => {
                let of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let length = rest.iter().take_while(|byte| of_number(byte)).count();
                let number = std::str::from_utf8(&rest[..length]).ok()?;
                let is_integer = number.bytes().skip(1).all(|byte| byte.is_ascii_digit());
                if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some((path, number));
                }
                length
            }
            b'{' => {
                path.push(PathStep::Key(b""));
                1
            }
            b'[' => {
                path.push(PathStep::Index(0));
                1
            }
            b'}' | b']' => {
                path.pop();
                1
            }
            b',' => {
                if let Some(PathStep::Index(index)) = path.last_mut() {
                    *index += 1;
                }
                1
            }
            _ => 1,
        };
        rest = &rest[length..];
    }
    None
}

/// Bytes of the string that valid JSON begins with, its quotes included.
fn text_length(json: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = json.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

/// A JSON value without duplicate keys and NUL characters.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

/// Refuses the one character that databases and C strings cannot hold.
fn no_nul<E: de::Error>(text: &str) -> Result<&str, E> {
    if text.contains('\0') { Err(E::custom("a string holds a NUL character")) } else { Ok(text) }
}

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        no_nul(value).map(|text| Value::String(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        no_nul::<E>(&value)?;
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            no_nul::<A::Error>(&key)?;
            let Strict(value) = entries.next_value()?;
            if map.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key `{key}` stands twice in one object")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// The fields of an object, taken one by one; what is left over can be refused.
pub struct JsonFields {
    path: String,
    map: Map<String, Value>,
}

impl JsonFields {
    /// The fields of an object that stands for itself, wherever it was found.
    pub fn of(map: Map<String, Value>) -> Self {
        Self { path: String::new(), map }
    }

    /// The fields of a nested object.
    pub fn nested(path: impl Into<String>, value: Value) -> Result<Self, RequestError> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Self { path: format!("{path}."), map }),
            _ => Err(RequestError::invalid(path, "must be an object")),
        }
    }

    /// The full name of a field.
    pub fn name(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    /// An error about a field.
    pub fn bad<T>(&self, field: &str, reason: impl Into<String>) -> Result<T, RequestError> {
        Err(RequestError::invalid(self.name(field), reason))
    }

    /// Notes that a reader asks for a field: tests hold the API's description to it.
    fn note(&self, field: &str) {
        #[cfg(test)]
        asked::note(self.name(field));
        #[cfg(not(test))]
        let _ = field;
    }

    /// Takes a field; `null` counts as absent.
    pub fn take(&mut self, field: &str) -> Option<Value> {
        self.note(field);
        self.map.remove(field).filter(|value| !value.is_null())
    }

    /// Takes a field that must be there.
    pub fn require(&mut self, field: &str) -> Result<Value, RequestError> {
        match self.take(field) {
            Some(value) => Ok(value),
            None => self.bad(field, "is required"),
        }
    }

    /// Puts a field in, in place of one of its name; `null` is none.
    pub fn insert(&mut self, field: &str, value: Value) {
        self.map.insert(field.to_owned(), value);
    }

    /// A copy of a field that is not taken yet; `null` counts as absent.
    pub fn copy(&self, field: &str) -> Option<Value> {
        self.note(field);
        self.map.get(field).filter(|value| !value.is_null()).cloned()
    }

    /// A copy of all fields that are not taken yet.
    pub fn copy_all(&self) -> Map<String, Value> {
        self.map.clone()
    }

    /// A field that is not taken yet.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.note(field);
        self.map.get(field)
    }

    /// A field that is a whole number, left where it is.
    pub fn count(&self, field: &str) -> Option<u64> {
        self.note(field);
        self.map.get(field).and_then(Value::as_u64)
    }

    /// A string that is not taken yet; `None` where there is none.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.note(field);
        self.map.get(field).and_then(Value::as_str)
    }

    /// Takes a string.
    pub fn string(&mut self, field: &str) -> Result<Option<String>, RequestError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => self.bad(field, "must be a string"),
        }
    }

    /// Takes true or false.
    pub fn bool(&mut self, field: &str) -> Result<Option<bool>, RequestError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => self.bad(field, "must be true or false"),
        }
    }

    /// Takes an integer of `min..=max`.
    pub fn integer(&mut self, field: &str, min: u64, max: u64) -> Result<Option<u64>, RequestError> {
        let Some(value) = self.take(field) else { return Ok(None) };
        match value.as_u64().filter(|number| (min..=max).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => self.bad(field, format!("must be an integer from {min} to {max}")),
        }
    }

    /// Takes a finite number that `accept` accepts; `range` says in words which those are.
    pub fn number(
        &mut self,
        field: &str,
        range: &str,
        accept: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, RequestError> {
        let Some(value) = self.take(field) else { return Ok(None) };
        match value.as_f64().filter(|number| number.is_finite() && accept(*number)) {
            Some(number) => Ok(Some(number)),
            None => self.bad(field, format!("must be a number {range}")),
        }
    }

    /// Takes an array.
    pub fn array(&mut self, field: &str) -> Result<Option<Vec<Value>>, RequestError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => self.bad(field, "must be an array"),
        }
    }

    /// The names of fields that nobody took, in order.
    pub fn left(&self) -> Vec<String> {
        let left = self.map.iter().filter(|(_, value)| !value.is_null());
        let mut names: Vec<String> = left.map(|(key, _)| self.name(key)).collect();
        names.sort();
        names
    }

    /// Refuses fields that nobody took.
    pub fn finish(self) -> Result<(), RequestError> {
        match self.map.iter().find(|(_, value)| !value.is_null()) {
            Some((key, _)) => self.bad(key, "is not a field of this request"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &[u8], part: &str) {
        let error = value(body).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }

    #[test]
    fn what_json_parsers_disagree_about_is_refused_with_its_position() {
        refused(b"", "empty");
        refused(b"{\"a\":1,\n\"a\":2}", "line 2");
        refused(b"{\"a\":{\"b\":1,\"b\":2}}", "`b` stands twice");
        refused(b"[\"\\u0000\"]", "NUL");
        refused(b"[\"\\ud800\"]", "column");
        refused(b"[\"\xff\"]", "column");
        refused(b"[1e999]", "out of range");
        refused(b"[NaN]", "column");
        refused("[".repeat(10_000).as_bytes(), "recursion limit");
        refused(b"{} x", "trailing");
    }

    #[test]
    fn digits_of_an_integer_are_kept_or_refused() {
        for kept in [
            "[18446744073709551615, -9223372036854775808]",
            r#"["123456789012345678901234", {"\"18446744073709551616": 1e300}]"#,
            "[0.5, 1e2, -0]",
        ] {
            assert!(value(kept.as_bytes()).is_ok(), "{kept}");
        }
        refused(b"[1, \"a\\\\\", 18446744073709551616]", "invalid `[2]`: the number 18446744073709551616 is");
        for (body, said) in [
            (
                r#"{"a" : [{}, "b", -9223372036854775809]}"#,
                "invalid `a[2]`: the number -9223372036854775809 is too small",
            ),
            (
                r#"{"limits":{"models":["a"],"day_tokens":99999999999999999999}}"#,
                "invalid `limits.day_tokens`: the number 99999999999999999999 is too large",
            ),
            (
                r#"{"a":{"b":[1]},"max_tokens":18446744073709551616}"#,
                "invalid `max_tokens`: the number 18446744073709551616 is too large",
            ),
            (
                r#"{"rows":[[],[1,{"id":18446744073709551616}]]}"#,
                "invalid `rows[1][1].id`: the integer 18446744073709551616 has more digits than a number keeps: send it as a string",
            ),
        ] {
            let error = value(body.as_bytes()).expect_err("refused").to_string();
            assert_eq!(error, said);
        }
    }

    #[test]
    fn a_field_out_of_range_is_named() {
        let mut fields = object(br#"{"seed":1.5,"n":-1,"x":"y"}"#).expect("an object");
        assert!(
            matches!(fields.integer("seed", 0, u64::MAX), Err(RequestError::Invalid { field, .. }) if field == "seed")
        );
        assert!(
            matches!(fields.integer("n", 0, 9), Err(RequestError::Invalid { field, .. }) if field == "n")
        );
        assert!(matches!(fields.finish(), Err(RequestError::Invalid { field, .. }) if field == "x"));
    }
}
