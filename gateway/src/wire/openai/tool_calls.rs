//! Calls of tools in what a model says, as far as it has said it.
//!
//! Models write calls as JSON: between tags, or as all of the answer. What is read of a text only grows with the text,
//! so that a client that streams gets each piece of a call's arguments once. JSON that calls no known tool is text.

use std::sync::Arc;

use base::{End, ToolCallForm};
use serde::Serialize;
use serde_json::Value;
use store::ResultKey;
use utoipa::ToSchema;

/// What stands before a call and behind it, where a model has tags for that.
pub const TAGS: (&str, &str) = ("<tool_call>", "</tool_call>");
/// What some servers tell of Mistral's marks: before calls, before a call's id, and before its arguments.
const MISTRAL_MARK: &str = "[TOOL_CALLS]";
const ID_MARK: &str = "[CALL_ID]";
const ARGUMENTS_MARK: &str = "[ARGS]";
/// Letters and digits of an id of Mistral's.
const MISTRAL_ID_CHARACTERS: usize = 9;
/// Most that stands between a call's name and its arguments.
const MISTRAL_MARKS_BYTES: usize = ID_MARK.len() + MISTRAL_ID_CHARACTERS + ARGUMENTS_MARK.len();
/// Characters of an id: letters and digits.
const ID_CHARACTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// How calls are read in the answers of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReader {
    /// What may be called.
    pub names: Arc<[String]>,
    /// In which words.
    pub form: ToolCallForm,
    /// Whether calls are all of an answer, without tags: it must have some, or is JSON either way.
    pub is_bare: bool,
    /// Whether the request named the tool: OpenAI says `stop` of such an answer's end.
    pub is_named: bool,
    /// Whether an answer may have several calls.
    pub is_parallel: bool,
    /// Whether its one call is told as `function_call`, as OpenAI did before tools.
    pub is_legacy: bool,
}

/// What is read of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAnswer {
    /// What it says beside its calls.
    pub content: String,
    /// Whether some of that stands before the first call.
    pub is_said_first: bool,
    /// Bytes of it that do, where there are calls.
    bytes_before: usize,
    pub calls: Vec<ReadCall>,
}

impl ReadAnswer {
    /// An answer that calls nothing.
    pub fn of_text(text: &str) -> Self {
        Self { content: text.to_owned(), is_said_first: true, ..Self::default() }
    }

    /// What it says before its calls, and behind the first of them.
    pub fn said_around(&self) -> (&str, &str) {
        if self.calls.is_empty() {
            return (&self.content, "");
        }
        let (before, behind) = self.content.split_at_checked(self.bytes_before).unwrap_or_default();
        (before, behind.trim_start_matches('\n'))
    }
}

/// A call, as far as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadCall {
    pub name: String,
    /// JSON text of an object.
    pub arguments: String,
}

/// A call of a tool on the wire.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ToolCallReply {
    /// Its number in the answer; in pieces of one alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// `call_...`, in the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`, in the first piece.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    pub function: FunctionReply,
}

/// What is called.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FunctionReply {
    /// In the first piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// JSON text of an object, or its next piece.
    pub arguments: String,
}

/// How far an object of JSON that may be a call is read.
#[derive(Debug, Default)]
struct PartialCall<'a> {
    name: Option<String>,
    /// As they are written, so far.
    arguments: Option<&'a str>,
    /// Whether they are written to their end.
    is_whole: bool,
    /// Bytes to the object's end, where it has one.
    end: Option<usize>,
}

impl CallReader {
    /// What is read of a text; `is_over`: nothing comes behind it.
    pub fn read(&self, text: &str, is_over: bool) -> ReadAnswer {
        let mut answer = match self.form {
            ToolCallForm::Hermes if !self.is_bare => self.tagged(text, is_over),
            ToolCallForm::Mistral if !self.is_bare => {
                self.named(text, is_over).unwrap_or_else(|| self.bare(text, is_over))
            }
            ToolCallForm::Hermes | ToolCallForm::Mistral | ToolCallForm::Llama => self.bare(text, is_over),
        };
        if !self.is_parallel {
            answer.calls.truncate(1);
        }
        answer.is_said_first |= answer.calls.is_empty();
        answer
    }

    /// Why an answer ended, in OpenAI's words, where it is not as it is without calls.
    pub fn finish_reason(&self, answer: &ReadAnswer, end: End) -> Option<&'static str> {
        let reason = if self.is_legacy { "function_call" } else { "tool_calls" };
        (end.is_stop() && !answer.calls.is_empty() && !self.is_named).then_some(reason)
    }

    /// The id of a call: the same each time it is asked for. `of`: the reply's id; `row` and `number`: where in it.
    pub fn id(&self, of: &str, row: u32, number: usize) -> String {
        let place = format!("{row}/{number}");
        let hash = ResultKey::of(&[of.as_bytes(), place.as_bytes()]).0;
        let character = |byte: &u8| char::from(ID_CHARACTERS[usize::from(*byte) % ID_CHARACTERS.len()]);
        let characters = hash.iter().map(character);
        match self.form {
            // Its templates take ids of nine letters and digits alone.
            ToolCallForm::Mistral => characters.take(MISTRAL_ID_CHARACTERS).collect(),
            ToolCallForm::Hermes | ToolCallForm::Llama => {
                "call_".chars().chain(characters.take(24)).collect()
            }
        }
    }

    /// Calls between tags, and text around them.
    fn tagged(&self, text: &str, is_over: bool) -> ReadAnswer {
        let (begin, end) = TAGS;
        let mut calls = Vec::new();
        // What is said before, between and behind calls; `open`: where the last of it begins.
        let (mut said, mut open) = (Vec::new(), 0);
        let mut at = 0;
        while let Some(place) = text[at..].find(begin) {
            let (start, inner) = (at + place, at + place + begin.len());
            let call = partial_call(&text[inner..]);
            match (self.call_of(&call), call.end) {
                (Some(read), call_end) => {
                    calls.push(read);
                    said.push(&text[open..start]);
                    let Some(call_end) = call_end else { return of_said(&said, calls) };
                    let behind = &text[inner + call_end..];
                    let after = behind.trim_start().strip_prefix(end).unwrap_or(behind);
                    at = text.len() - after.len();
                    open = at;
                }
                (None, Some(call_end)) => at = inner + call_end,
                (None, None) if is_over => break,
                // It may become a call.
                (None, None) => {
                    let before = if calls.is_empty() { &text[..start] } else { "" };
                    said.push(before);
                    return of_said(&said, calls);
                }
            }
        }
        if calls.is_empty() {
            let content = if is_over { text } else { without_start(text, begin).trim_end() };
            return ReadAnswer { content: content.to_owned(), ..ReadAnswer::default() };
        }
        // What is said behind a call is told at the end: it may be the beginning of a tag.
        said.push(if is_over { &text[open..] } else { "" });
        of_said(&said, calls)
    }

    /// Calls as all of the answer, each a name and its arguments behind it, as Mistral's models write them since version
    /// 11 of their tokenizer. None where there are none, and none can come.
    fn named(&self, text: &str, is_over: bool) -> Option<ReadAnswer> {
        let mut answer = ReadAnswer::default();
        let mut rest = without_mark(text);
        while let Some((name, arguments)) = self.named_start(rest) {
            let end = value_end(arguments, 0);
            let written = end.map_or(arguments, |end| &arguments[..end]);
            answer.calls.push(ReadCall { name: name.to_owned(), arguments: written.to_owned() });
            let Some(end) = end else { return Some(answer) };
            rest = without_mark(&arguments[end..]);
        }
        let is_held = !is_over && self.may_be_named(rest);
        (is_held || !answer.calls.is_empty()).then_some(answer)
    }

    /// The name of a call that a text begins with, and the text from its arguments on.
    fn named_start<'a>(&'a self, text: &'a str) -> Option<(&'a str, &'a str)> {
        let start = |name: &'a String| {
            let behind = text.strip_prefix(name.as_str())?;
            let arguments = [behind, behind_id(behind)].into_iter().find(|rest| rest.starts_with('{'))?;
            Some((name.as_str(), arguments))
        };
        // A name may begin another.
        self.names.iter().filter_map(start).max_by_key(|(name, _)| name.len())
    }

    /// Whether a text may become one that begins with a call.
    fn may_be_named(&self, text: &str) -> bool {
        let is_mark = |byte: u8| byte.is_ascii_alphanumeric() || b"[]_".contains(&byte);
        let is_between = |rest: &str| rest.len() <= MISTRAL_MARKS_BYTES && rest.bytes().all(is_mark);
        let may_be = |name: &String| {
            name.starts_with(text) || text.strip_prefix(name.as_str()).is_some_and(is_between)
        };
        self.names.iter().any(may_be)
    }

    /// Calls as all of the answer: an object, several one behind the other, or an array of them.
    fn bare(&self, text: &str, is_over: bool) -> ReadAnswer {
        let mut answer = ReadAnswer::default();
        let trimmed = text.trim_start();
        let body = trimmed.strip_prefix(MISTRAL_MARK).unwrap_or(trimmed);
        let body = body.trim_start_matches(|c: char| c.is_whitespace() || c == '[');
        let mut rest = body;
        while let Some(start) = rest.find(|c: char| !c.is_whitespace() && !"],;".contains(c)) {
            if !rest[start..].starts_with('{') {
                break;
            }
            let call = partial_call(&rest[start..]);
            let Some(read) = self.call_of(&call) else { break };
            answer.calls.push(read);
            match call.end {
                Some(end) => rest = &rest[start + end..],
                None => break,
            }
        }
        // Once it cannot become a call it is text, at once.
        let may_be_call = body.is_empty()
            || MISTRAL_MARK.starts_with(trimmed)
            || body.starts_with('{') && {
                let call = partial_call(body);
                call.end.is_none() && call.name.is_none_or(|name| self.names.contains(&name))
            };
        if answer.calls.is_empty() && (is_over || !may_be_call) {
            answer.content = text.to_owned();
        }
        answer
    }

    /// The call, where its tool is known and its arguments have begun.
    fn call_of(&self, call: &PartialCall<'_>) -> Option<ReadCall> {
        let name = call.name.clone().filter(|name| self.names.contains(name))?;
        let arguments = match call.arguments {
            None if call.end.is_some() => "{}".to_owned(),
            Some(text) if text.starts_with('{') => text.to_owned(),
            // JSON in JSON, as some models write it, or none.
            Some(text) if call.is_whole => match serde_json::from_str(text) {
                Ok(Value::Null) => "{}".to_owned(),
                Ok(Value::String(text)) if text.trim_start().starts_with('{') => text,
                _ => return None,
            },
            Some(_) | None => return None,
        };
        Some(ReadCall { name, arguments })
    }
}

/// A text without the mark of calls in front of it.
fn without_mark(text: &str) -> &str {
    let text = text.trim_start();
    text.strip_prefix(MISTRAL_MARK).map_or(text, str::trim_start)
}

/// A text without an id in front of it, and without marks.
fn behind_id(text: &str) -> &str {
    let rest = text.strip_prefix(ID_MARK).unwrap_or(text);
    let id = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let rest = if id == MISTRAL_ID_CHARACTERS { &rest[id..] } else { rest };
    rest.strip_prefix(ARGUMENTS_MARK).unwrap_or(rest)
}

/// An answer of texts and the calls between them.
fn of_said(said: &[&str], calls: Vec<ReadCall>) -> ReadAnswer {
    let first = said.first().map_or("", |text| text.trim_end());
    let is_said_first = !first.is_empty();
    ReadAnswer { content: joined(said), is_said_first, bytes_before: first.len(), calls }
}

/// Texts that are not blank, without white space around them, a line each; the first keeps its beginning, which a
/// stream has told already.
fn joined(texts: &[&str]) -> String {
    let Some((first, others)) = texts.split_first() else { return String::new() };
    let mut lines = vec![first.trim_end()];
    lines.extend(others.iter().map(|text| text.trim()));
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

/// A text without the beginning of `mark` that it may end in.
fn without_start<'a>(text: &'a str, mark: &str) -> &'a str {
    let ends_so = |length: &usize| mark.get(..*length).is_some_and(|start| text.ends_with(start));
    let held = (1..mark.len()).rev().find(ends_so).unwrap_or_default();
    &text[..text.len() - held]
}

/// Reads the members of an object as far as they are written.
fn partial_call(text: &str) -> PartialCall<'_> {
    let mut call = PartialCall::default();
    let mut at = text.len() - text.trim_start().len();
    if !text[at..].starts_with('{') {
        // No object, and never one.
        call.end = text[at..].chars().next().map(|_| 0);
        return call;
    }
    at += 1;
    loop {
        at = skip(text, at, ",");
        if text[at..].starts_with('}') {
            call.end = Some(at + 1);
            return call;
        }
        let Some(key_end) = value_end(text, at) else { return call };
        let key: Option<String> = serde_json::from_str(&text[at..key_end]).ok();
        at = skip(text, key_end, ":");
        let value = &text[at..];
        let value_end = value_end(text, at);
        match key.as_deref() {
            Some("name") => {
                call.name = value_end.and_then(|end| serde_json::from_str(&text[at..end]).ok());
            }
            // The first of them: a client may have it already.
            Some("arguments" | "parameters") if !value.is_empty() && call.arguments.is_none() => {
                call.arguments = Some(value_end.map_or(value, |end| &text[at..end]));
                call.is_whole = value_end.is_some();
            }
            _ => {}
        }
        match value_end {
            // A character that begins no value: this is no JSON.
            Some(end) if end == at => {
                call.end = Some(at);
                call.name = call.name.filter(|_| call.arguments.is_some());
                return call;
            }
            Some(end) => at = end,
            None => return call,
        }
    }
}

/// The place behind white space and one of these marks.
fn skip(text: &str, at: usize, mark: &str) -> usize {
    let rest = text[at..].trim_start();
    let rest = rest.strip_prefix(mark).unwrap_or(rest).trim_start();
    text.len() - rest.len()
}

/// Where the value that begins here ends; none where it is not written to its end.
fn value_end(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    match bytes.get(at)? {
        b'"' => string_end(bytes, at),
        b'{' | b'[' => {
            let (mut depth, mut place) = (0_usize, at);
            while let Some(byte) = bytes.get(place) {
                match byte {
                    b'"' => {
                        place = string_end(bytes, place)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                place += 1;
                if depth == 0 {
                    return Some(place);
                }
            }
            None
        }
        _ => {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
            let length = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
            // A number or a word goes on until something else comes.
            (at + length < bytes.len()).then_some(at + length)
        }
    }
}

fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut place = at + 1;
    loop {
        match bytes.get(place)? {
            b'\\' => place += 2,
            b'"' => return Some(place + 1),
            _ => place += 1,
        }
    }
}

impl ReadCall {
    /// The call as a whole reply has it.
    pub fn reply(self, id: String) -> ToolCallReply {
        let function = FunctionReply { name: Some(self.name), arguments: self.arguments };
        ToolCallReply { index: None, id: Some(id), kind: Some("function"), function }
    }

    /// Whether its arguments are an object's JSON.
    #[cfg(test)]
    fn is_sound(&self) -> bool {
        serde_json::from_str::<Value>(&self.arguments).is_ok_and(|value| value.is_object())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(form: ToolCallForm, is_bare: bool) -> CallReader {
        let names = ["find", "add"].map(str::to_owned).into();
        CallReader { names, form, is_bare, is_named: false, is_parallel: true, is_legacy: false }
    }

    fn call(name: &str, arguments: &str) -> ReadCall {
        ReadCall { name: name.into(), arguments: arguments.into() }
    }

    /// Reads a text whole, and at every length before: what is read must only grow.
    fn read(reader: &CallReader, text: &str) -> ReadAnswer {
        let whole = reader.read(text, true);
        let mut before = ReadAnswer::default();
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let now = if end == text.len() { whole.clone() } else { reader.read(&text[..end], false) };
            assert!(now.content.starts_with(&before.content), "{:?} then {:?}", before.content, now.content);
            assert!(now.calls.len() >= before.calls.len(), "{text:?} at {end}");
            for (old, new) in before.calls.iter().zip(&now.calls) {
                assert_eq!(old.name, new.name);
                assert!(
                    new.arguments.starts_with(&old.arguments),
                    "{:?} then {:?}",
                    old.arguments,
                    new.arguments
                );
            }
            before = now;
        }
        whole
    }

    #[test]
    fn calls_between_tags_are_read_with_the_text_around_them() {
        let hermes = reader(ToolCallForm::Hermes, false);
        let first = r#"<tool_call>
{"name": "find", "arguments": {"text": "a } \" <tool_call>", "n": [1, {"é": null}]}}
</tool_call>"#;
        let second = r#"<tool_call>{"arguments": {}, "name": "add"}</tool_call>"#;
        let answer = read(&hermes, &format!("I look.\n{first}\n{second}\n Done. "));
        assert_eq!((answer.content.as_str(), answer.said_around()), ("I look.\nDone.", ("I look.", "Done.")));
        let expected =
            [call("find", r#"{"text": "a } \" <tool_call>", "n": [1, {"é": null}]}"#), call("add", "{}")];
        assert_eq!(answer.calls, expected);
        assert!(answer.calls.iter().all(ReadCall::is_sound));
        let alone = CallReader { is_parallel: false, ..hermes };
        assert_eq!(alone.read(&format!("{first}{second}"), true).calls.len(), 1);
    }

    #[test]
    fn what_calls_nothing_is_text() {
        let hermes = reader(ToolCallForm::Hermes, false);
        for text in [
            " Paris. <tool_ca",
            "1 < 2",
            "<tool_call>\n{\"name\": \"drop\", \"arguments\": {}}\n</tool_call>",
            "<tool_call>find</tool_call>",
            "<tool_call>{\"name\": \"find\"",
            "",
        ] {
            let answer = read(&hermes, text);
            assert_eq!((answer.content.as_str(), answer.calls.len()), (text, 0));
        }
        let llama = reader(ToolCallForm::Llama, false);
        for text in [
            "{\"answer\": 5}",
            "[1] As it says",
            "Paris.",
            "{",
            "{\"name\": \"drop\", \"parameters\": {}}",
            "[TOOL",
        ] {
            let answer = read(&llama, text);
            assert_eq!((answer.content.as_str(), answer.calls.len()), (text, 0));
        }
    }

    #[test]
    fn calls_that_are_the_whole_answer_are_read_in_each_form() {
        let llama = reader(ToolCallForm::Llama, false);
        let expected = call("find", r#"{"text": "a"}"#);
        for text in [
            r#"{"name": "find", "parameters": {"text": "a"}}"#,
            r#" {"type": "function", "name": "find", "parameters": {"text": "a"} }"#,
            r#"{"name": "find", "arguments": "{\"text\": \"a\"}"}"#,
        ] {
            assert_eq!(read(&llama, text).calls, std::slice::from_ref(&expected), "{text}");
        }
        let two = r#"{"name": "find", "parameters": {"text": "a"}}; {"name": "add"}"#;
        assert_eq!(read(&llama, two).calls, [expected.clone(), call("add", "{}")]);
        for (text, arguments) in [("null", Some("{}")), ("[1]", None), ("\"so\"", None), ("5", None)] {
            let text = format!(r#"{{"name": "find", "parameters": {text}, "arguments": {{"n": 1}}}}"#);
            let expected: Vec<ReadCall> =
                arguments.map(|arguments| call("find", arguments)).into_iter().collect();
            assert_eq!(read(&llama, &text).calls, expected, "{text}");
        }
        let early = llama.read("[1] As", false);
        assert_eq!(early.content, "[1] As", "it is told at once");
        let early = llama.read("{\"name\": \"drop\", ", false);
        assert_eq!(early.content, "{\"name\": \"drop\", ");
        let mistral = reader(ToolCallForm::Mistral, false);
        for mark in ["", " ", "[TOOL_CALLS] "] {
            let text =
                format!(r#"{mark}[{{"name": "find", "arguments": {{"text": "a"}}}}, {{"name": "add"}}]"#);
            assert_eq!(read(&mistral, &text).calls, [expected.clone(), call("add", "{}")], "{text}");
        }
        for between in ["", "[ARGS]", "0a1B2c3D4", "[CALL_ID]0a1B2c3D4[ARGS]"] {
            for mark in ["", "[TOOL_CALLS]"] {
                let text = format!(r#"{mark}find{between}{{"text": "a"}}{mark}add{between}{{}}"#);
                assert_eq!(read(&mistral, &text).calls, [expected.clone(), call("add", "{}")], "{text}");
            }
        }
        let cut = read(&mistral, "[TOOL_CALLS]find[ARGS]{\"text\": \"a lon");
        assert_eq!(cut.calls, [call("find", "{\"text\": \"a lon")]);
        for text in ["find", "finding it is hard", "find it", "drop{}", "fin", "add 1 and 2", "[TOOL_CALLS]"]
        {
            let answer = read(&mistral, text);
            assert_eq!((answer.content.as_str(), answer.calls.len()), (text, 0));
        }
        assert_eq!(mistral.read("find it", false).content, "find it", "it is told at once");
        assert_eq!(mistral.id("r", 0, 0).len(), 9);
        let forced = reader(ToolCallForm::Hermes, true);
        assert_eq!(read(&forced, r#"{"name": "find", "arguments": {"text": "a"}}"#).calls, [expected]);
    }

    #[test]
    fn a_call_that_is_cut_off_keeps_what_it_has() {
        let hermes = reader(ToolCallForm::Hermes, false);
        let answer = read(&hermes, "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"text\": \"a lon");
        assert_eq!(answer.calls, [call("find", "{\"text\": \"a lon")]);
        assert_eq!(hermes.finish_reason(&answer, End::Length), None);
        assert_eq!(hermes.finish_reason(&answer, End::Stop), Some("tool_calls"));
        assert_ne!(hermes.id("r", 0, 0), hermes.id("r", 0, 1));
        assert!(hermes.id("r", 0, 0).starts_with("call_"));
    }
}
