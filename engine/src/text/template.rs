//! The checkpoint's chat template: Jinja, as Hugging Face tokenizers carry it, run as it is written over the
//! contents as they are.
//!
//! It may trim a content, look into it, change it or leave it out; what it writes is the prompt. Contents stay
//! apart from markup all the same, whatever they hold: the conversation is rendered a second time with marks in
//! its contents, and where both say the same but for the marks, the marks tell what came out of which content.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

use base::{ChatTemplate, Piece, PromptEnd, RenderedPiece, Role, TextError, ToolCallForm, ToolFields};
use minijinja::value::merge_maps;
use minijinja::{Environment, Error, ErrorKind, Value, context};

use crate::checkpoint::error::CheckpointError;
use crate::text::marks::{Guard, Marks};
use crate::text::python;
use crate::text::strftime::strftime;

/// What the template is called in errors.
const NAME: &str = "chat_template";

/// Instructions that one rendering takes at most, a second's work. Templates take some hundred for each message; one that
/// looks at all later messages from each (an agent's calls, in some) has room for two thousand.
const INSTRUCTIONS_MAX: u64 = 20_000_000;
/// Bytes that one rendering writes at most: more than any context takes.
const BYTES_MAX: usize = 64 << 20;

/// Which neighbours are joined into one message, a blank line between, by their roles: none; where the template
/// refuses that, neighbours of one role; then also a system message and the user's behind it, which is what
/// Mistral's templates do.
const JOINS: [fn(Role, Role) -> bool; 3] = [
    |_, _| false,
    |before, role| before == role,
    |before, role| before == role || (before, role) == (Role::System, Role::User),
];

/// A compiled chat template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    names: SpecialNames,
    /// Numbers of the special tokens that the template itself has words for.
    own: Vec<usize>,
    /// In which words it has models call tools.
    pub(crate) tool_call_form: Option<ToolCallForm>,
    /// Variables of the caller's.
    variables: Value,
    /// Where the conversations that it writes end.
    end: PromptEnd,
}

impl ChatTemplate for Template {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        Self::frame(self, roles)
    }

    fn render(&self, messages: &[(Role, &str)]) -> Result<Vec<RenderedPiece>, TextError> {
        Self::render(self, messages)
    }

    fn tool_call_form(&self) -> Option<ToolCallForm> {
        self.tool_call_form
    }

    fn render_tools(
        &self,
        messages: &[(Role, &str)],
        fields: &ToolFields,
    ) -> Result<Vec<RenderedPiece>, TextError> {
        Self::render_tools(self, messages, fields)
    }

    fn ending(&self, end: PromptEnd) -> Option<Box<dyn ChatTemplate + '_>> {
        Some(Box::new(Self { end, ..self.clone() }))
    }
}

/// How special tokens are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpecialNames {
    /// Empty where there is none.
    pub(crate) bos_token: String,
    /// Empty where there is none.
    pub(crate) eos_token: String,
    /// All that markup is searched for.
    pub(crate) reserved: Vec<String>,
}

/// A message as the template gets it: its role, and the numbers of the messages that it is made of.
type Turn = (Role, Vec<usize>);

impl Template {
    /// Compiles `source`. With `now` (unix seconds) the template may ask for the date.
    pub(crate) fn new(source: &str, names: SpecialNames, now: Option<u64>) -> Result<Self, CheckpointError> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(INSTRUCTIONS_MAX));
        environment.set_unknown_method_callback(python::method);
        environment.add_filter("trim", python::trim);
        environment.add_filter("tojson", python::to_json);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        if let Some(now) = now {
            environment.add_function("strftime_now", move |format: String| strftime(now, &format));
        }
        environment
            .add_template_owned(NAME, without_generation_blocks(source))
            .map_err(|error| CheckpointError::malformed(NAME, error))?;
        let own = names.reserved.iter().enumerate().filter(|(_, name)| source.contains(name.as_str()));
        let own = own.map(|(number, _)| number).collect();
        Ok(Self {
            environment,
            names,
            own,
            tool_call_form: tool_call_form(source),
            variables: context! {},
            end: PromptEnd::Answer,
        })
    }

    /// The same with these variables, JSON text of an object. None of them takes the place of the conversation.
    pub(crate) fn with_variables(&self, variables: &str) -> Option<Self> {
        let variables: serde_json::Map<String, serde_json::Value> = serde_json::from_str(variables).ok()?;
        Some(Self { variables: Value::from_serialize(variables), ..self.clone() })
    }

    /// The conversation as the template writes it. Where it refuses the messages as they stand, some are joined
    /// ([`JOINS`]).
    pub(crate) fn render(&self, messages: &[(Role, &str)]) -> Result<Vec<RenderedPiece>, TextError> {
        self.first_of(messages, &|_| Ok(()))
    }

    /// The same with tools. No messages are joined.
    pub(crate) fn render_tools(
        &self,
        messages: &[(Role, &str)],
        fields: &ToolFields,
    ) -> Result<Vec<RenderedPiece>, TextError> {
        let texts = || fields.tools.iter().chain(fields.messages.values());
        let forged = self.names.reserved.iter().find(|name| texts().any(|text| text.contains(name.as_str())));
        if let Some(name) = forged {
            let reason = format!("the special token `{name}` is written in tools or calls of tools");
            return Err(TextError::Template(reason));
        }
        let parsed = ParsedTools::of(fields).map_err(TextError::Template)?;
        let written = self.written(messages, JOINS[0], &parsed, &|_| Ok(()));
        written.map_err(|error| TextError::Template(error.reason))
    }

    /// The markup around messages with these roles, as it is around contents that the template does not change.
    pub(crate) fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        const STAND_IN: &str = "x";
        let messages: Vec<_> = roles.iter().map(|role| (*role, STAND_IN)).collect();
        let pieces = self.first_of(&messages, &|pieces| {
            let is_whole = |i: usize| {
                let whole = RenderedPiece::Content { message: i, text: STAND_IN.to_owned() };
                pieces.contains(&whole)
            };
            match (0..roles.len()).find(|i| !is_whole(*i)) {
                Some(lost) => Err(format!("it leaves out or changes message {lost}")),
                None => Ok(()),
            }
        })?;
        let pieces = pieces.into_iter().map(|piece| match piece {
            RenderedPiece::Markup(text) => Piece::Markup(text),
            RenderedPiece::Content { message, .. } => Piece::Content(message),
        });
        Ok(pieces.collect())
    }

    /// The first way to join messages that the template takes and `accept` likes; else why not, of the messages
    /// as they stand. One that meets a bound is not asked again: it would take as long each time.
    fn first_of(
        &self,
        messages: &[(Role, &str)],
        accept: &dyn Fn(&[RenderedPiece]) -> Result<(), String>,
    ) -> Result<Vec<RenderedPiece>, TextError> {
        let mut first = None;
        for joins in JOINS {
            match self.written(messages, joins, &ParsedTools::default(), accept) {
                Ok(pieces) => return Ok(pieces),
                Err(RenderError { reason, is_bound: true }) => return Err(TextError::Template(reason)),
                Err(RenderError { reason, .. }) => _ = first.get_or_insert(reason),
            }
        }
        Err(TextError::Template(first.unwrap_or_default()))
    }

    /// Messages that are joined in one way, where the template takes them and `accept` likes what it writes.
    fn written(
        &self,
        messages: &[(Role, &str)],
        joins: fn(Role, Role) -> bool,
        tools: &ParsedTools,
        accept: &dyn Fn(&[RenderedPiece]) -> Result<(), String>,
    ) -> Result<Vec<RenderedPiece>, RenderError> {
        let turns = turns(messages, joins);
        let text = self.text(&turns, tools, &|i| messages[i].1.to_owned())?;
        let mut pieces = self.pieces(&turns, (messages, tools), &text)?;
        if self.end == PromptEnd::Text && !messages.is_empty() {
            let end = self.end_of_last(&turns, (messages, tools), (&text, &pieces))?;
            cut(&mut pieces, end);
        }
        accept(&pieces)?;
        Ok(pieces)
    }

    /// The pieces of `text`, which is these turns as the template writes them.
    fn pieces(
        &self,
        turns: &[Turn],
        (messages, tools): (&[(Role, &str)], &ParsedTools),
        text: &str,
    ) -> Result<Vec<RenderedPiece>, String> {
        let contents = messages.iter().map(|(_, content)| *content);
        let marks = Marks::absent_from(contents.chain([text]), &self.names.reserved)
            .ok_or("the messages hold every private character there is")?;
        let read = |guards: &[Guard]| {
            let marked = self.text(turns, tools, &|i| marks.mark(messages[i].1, i, &guards[i])).ok()?;
            marks.read(&marked, text)
        };
        if let Some(pieces) = read(&vec![Guard::Borders; messages.len()]) {
            return Ok(pieces);
        }
        let names: Vec<Vec<usize>> = messages.iter().map(|(_, content)| marks.names_in(content)).collect();
        match self.watched_pieces(messages, &names, &read) {
            Some(pieces) => Ok(pieces),
            None if names.iter().all(Vec::is_empty) => Ok(vec![RenderedPiece::Markup(text.to_owned())]),
            None => Err("it changes a message in which a special token is written".to_owned()),
        }
    }

    /// Where the text of the last message ends in `text`, which is these turns as the template writes them. White space
    /// at its end belongs to it where the template keeps it.
    fn end_of_last(
        &self,
        turns: &[Turn],
        (messages, tools): (&[(Role, &str)], &ParsedTools),
        (text, pieces): (&str, &[RenderedPiece]),
    ) -> Result<usize, String> {
        const LOST: &str = "it leaves out or changes the last message, which is to be continued";
        let last = messages.len() - 1;
        let content = messages[last].1;
        let is_its = |piece: &RenderedPiece| matches!(piece, RenderedPiece::Content { message, .. } if *message == last);
        let end: usize = match pieces.iter().rposition(is_its) {
            Some(place) => pieces[..=place].iter().map(|piece| piece.text().len()).sum(),
            // The template minded marks at the ends of this content, or leaves it out. With a mark in its place all
            // else stays as it is: the same text in an earlier message, or in the markup, is not taken for it.
            None => {
                let contents = messages.iter().map(|(_, content)| *content);
                let marks = Marks::absent_from(contents.chain([text]), &self.names.reserved).ok_or(LOST)?;
                let mark = marks.whole();
                let content_or_mark =
                    |i: usize| if i == last { mark.to_string() } else { messages[i].1.to_owned() };
                let other = self.text(turns, tools, &content_or_mark).map_err(|error| reason(&error))?;
                let said = content.trim_matches(python::is_space);
                let times = other.matches(mark).count().max(1);
                end_within(difference(text, &other), text, (said, times)).ok_or(LOST)?
            }
        };
        let trail = &content[content.trim_end_matches(python::is_space).len()..];
        Ok(if text[end..].starts_with(trail) { end + trail.len() } else { end })
    }

    /// The pieces where the template minds marks at the ends of some contents, because it looks into them
    /// (Qwen 3 cuts the thoughts off an answer). `names`: the special tokens that are written in each message.
    ///
    /// In these contents special tokens are hidden, so that none is taken for the template's; but for words of
    /// the template's own whose absence changes what it writes. They are looked for among answers, then in
    /// every message with such a word, then everywhere.
    fn watched_pieces(
        &self,
        messages: &[(Role, &str)],
        names: &[Vec<usize>],
        read: &dyn Fn(&[Guard]) -> Option<Vec<RenderedPiece>>,
    ) -> Option<Vec<RenderedPiece>> {
        let has_own = |i: usize| names[i].iter().any(|name| self.own.contains(name));
        let is_answer = |i: usize| messages[i].0 == Role::Assistant && has_own(i);
        let guards = |is_watched: &dyn Fn(usize) -> bool, own: &[usize]| {
            let guard = |i: usize| match is_watched(i) {
                true => {
                    let is_hidden = |name: &&usize| !self.own.contains(name) || own.contains(name);
                    Guard::Hidden(names[i].iter().filter(is_hidden).copied().collect())
                }
                false => Guard::Borders,
            };
            (0..messages.len()).map(guard).collect::<Vec<_>>()
        };
        let watched: [&dyn Fn(usize) -> bool; 3] = [&is_answer, &has_own, &|_| true];
        let found = watched.iter().find_map(|watched| Some((watched, read(&guards(*watched, &[]))?)));
        let (watched, mut pieces) = found?;
        let mut hidden = Vec::new();
        for name in &self.own {
            hidden.push(*name);
            match read(&guards(*watched, &hidden)) {
                Some(better) => pieces = better,
                None => _ = hidden.pop(),
            }
        }
        Some(pieces)
    }

    /// Renders, ending where the answer begins, or with the last message where none is to begin.
    fn text(
        &self,
        turns: &[Turn],
        tools: &ParsedTools,
        content: &dyn Fn(usize) -> String,
    ) -> Result<String, Error> {
        let message = |(role, numbers): &Turn| {
            let content = numbers.iter().map(|i| content(*i)).collect::<Vec<_>>().join("\n\n");
            match numbers.first().and_then(|i| tools.messages.get(i)) {
                None => context! { role => role.name(), content => content },
                Some(fields) => {
                    let plain = context! { role => role.name(), content => content };
                    // What comes first wins: a tool's result has a role of its own.
                    context! { ..fields.clone(), ..plain }
                }
            }
        };
        let own = context! {
            messages => turns.iter().map(message).collect::<Vec<Value>>(),
            // Transformers says that there are none, and no documents; templates ask whether they are, or are `none`.
            tools => tools.tools,
            add_generation_prompt => self.end == PromptEnd::Answer,
            bos_token => self.names.bos_token,
            eos_token => self.names.eos_token,
        };
        // A cell has no room for a model's reasoning; templates that know the switch obey it (Qwen3).
        let rest = context! { documents => (), enable_thinking => false };
        // The last that has a name says what it is.
        let all = merge_maps([rest, self.variables.clone(), own]);
        let template = self.environment.get_template(NAME)?;
        let mut written = BoundedText { bytes: Vec::new(), is_full: false };
        let outcome = template.render_captured_to(all, &mut written).map(|_| ());
        match outcome {
            Ok(()) => Ok(String::from_utf8(written.bytes).expect("a template writes texts")),
            Err(_) if written.is_full => {
                let reason = format!("it writes more than {BYTES_MAX} bytes");
                Err(Error::new(ErrorKind::WriteFailure, reason))
            }
            Err(error) if error.kind() == ErrorKind::OutOfFuel => {
                let reason = format!("it takes more than {INSTRUCTIONS_MAX} instructions");
                Err(Error::new(ErrorKind::OutOfFuel, reason))
            }
            Err(error) => Err(error),
        }
    }
}

/// Why a conversation is not written.
struct RenderError {
    reason: String,
    /// Whether that is a bound of one rendering.
    is_bound: bool,
}

impl From<Error> for RenderError {
    fn from(error: Error) -> Self {
        let is_bound = matches!(error.kind(), ErrorKind::OutOfFuel | ErrorKind::WriteFailure);
        Self { reason: reason(&error), is_bound }
    }
}

impl From<String> for RenderError {
    fn from(reason: String) -> Self {
        Self { reason, is_bound: false }
    }
}

/// What a rendering has written, up to a bound.
struct BoundedText {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > BYTES_MAX {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tools and fields of messages as a template sees them.
#[derive(Debug, Default)]
struct ParsedTools {
    /// `None`: there are no tools.
    tools: Option<Value>,
    messages: BTreeMap<usize, Value>,
}

impl ParsedTools {
    fn of(fields: &ToolFields) -> Result<Self, String> {
        let parse = |text: &String| -> Result<Value, String> {
            let json: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
            Ok(Value::from_serialize(json))
        };
        let tools: Result<Vec<Value>, String> = fields.tools.iter().map(parse).collect();
        let messages = fields.messages.iter().map(|(i, text)| Ok((*i, parse(text)?)));
        let messages: Result<BTreeMap<usize, Value>, String> = messages.collect();
        Ok(Self {
            tools: Some(tools?).filter(|tools| !tools.is_empty()).map(Value::from),
            messages: messages?,
        })
    }
}

/// In which words a template has models call tools, by the marks that it writes.
fn tool_call_form(source: &str) -> Option<ToolCallForm> {
    if !source.contains("tools") {
        return None;
    }
    let marks = [
        ("<tool_call>", ToolCallForm::Hermes),
        ("[TOOL_CALLS]", ToolCallForm::Mistral),
        ("\"parameters\": ", ToolCallForm::Llama),
    ];
    marks.into_iter().find(|(mark, _)| source.contains(mark)).map(|(_, form)| form)
}

/// The messages that the template gets; one joins the message before it where `joins` says so of their roles.
fn turns(messages: &[(Role, &str)], joins: fn(Role, Role) -> bool) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::with_capacity(messages.len());
    for (i, (role, _)) in messages.iter().enumerate() {
        match turns.last_mut() {
            Some((before, numbers)) if joins(*before, *role) => {
                *before = *role;
                numbers.push(i);
            }
            _ => turns.push((*role, vec![i])),
        }
    }
    turns
}

/// Where `text` is not `other`: without what both begin with, and what both end with.
fn difference(text: &str, other: &str) -> Range<usize> {
    let is_same = |(one, other): &(char, char)| one == other;
    let bytes = |(one, _): (char, char)| one.len_utf8();
    let start: usize = text.chars().zip(other.chars()).take_while(is_same).map(bytes).sum();
    let backwards = text[start..].chars().rev().zip(other[start..].chars().rev());
    let end: usize = backwards.take_while(is_same).map(bytes).sum();
    start..text.len() - end
}

/// Where `said` ends for the last time in a part of `text`, where it stands there as often as it should.
fn end_within(part: Range<usize>, text: &str, (said, times): (&str, usize)) -> Option<usize> {
    if said.is_empty() || text[part.clone()].matches(said).count() != times {
        return None;
    }
    Some(part.start + text[part.clone()].rfind(said)? + said.len())
}

/// Cuts pieces at a place of their text.
fn cut(pieces: &mut Vec<RenderedPiece>, mut end: usize) {
    pieces.retain_mut(|piece| {
        let (RenderedPiece::Markup(text) | RenderedPiece::Content { text, .. }) = piece;
        text.truncate(end);
        end -= text.len();
        !text.is_empty()
    });
}

/// What a person should read of a template's refusal.
fn reason(error: &Error) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

/// `{% generation %}` marks the assistant's part for training; it has no effect on the text.
fn without_generation_blocks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        text.push_str(before);
        let Some((block, behind)) = after.split_once("%}") else {
            text.push_str("{%");
            rest = after;
            break;
        };
        let inner = block.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+'));
        let block = match inner {
            "generation" => block.replace("generation", "if true"),
            "endgeneration" => block.replace("endgeneration", "endif"),
            _ => block.to_owned(),
        };
        text.push_str("{%");
        text.push_str(&block);
        text.push_str("%}");
        rest = behind;
    }
    text.push_str(rest);
    text
}
