//! What a prompt takes of a schema and what it adds, by position (Prompt Cache, section 3.4).
//!
//! Modules stand where the schema puts them, in whatever order they are named. New text stands where it is
//! written: between two imports behind the first of them, before the first import in front of it, and else at
//! the end of the module (or the schema) that it stands in. It takes the positions that excluded modules,
//! shorter union members and short arguments leave free; where they are too few, what follows moves on, which
//! costs nothing: keys are read at any shift. Without that, as in the paper, text without a gap would have
//! nowhere to go.

use std::collections::{BTreeMap, BTreeSet};

use base::{TokenId, Tokenizer};

use super::document::{PmlError, TextPosition};
use super::ends::trim_prompt;
use super::layout::{Layout, Node, Param, Unit, Words};
use super::prompt::{Import, PmlPrompt, PromptPart};
use crate::conversation::{Tags, Text};

/// A prompt by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// What it is made of, in reading order; the last is new.
    pub stretches: Vec<Stretch>,
    /// Position of the first token of the answer.
    pub end: u32,
    /// The same as one text, without places that stay free.
    plain: Text,
}

/// Consecutive tokens of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// A piece of the schema.
    Piece {
        /// Number of its unit.
        unit: usize,
        /// Its number there.
        piece: usize,
        /// Where it stands in the prompt; in the schema it stands at its own start.
        start: u32,
        /// Its tokens that count: all, unless the last one is to be computed anew.
        tokens: usize,
    },
    /// Text that the schema does not have.
    New {
        /// Where it stands.
        start: u32,
        /// The tokens; never none.
        tokens: Vec<TokenId>,
    },
}

impl Layout {
    /// Puts a prompt together, of at most `length_max` positions.
    pub fn assemble(
        &self,
        prompt: &PmlPrompt,
        tokenizer: &dyn Tokenizer,
        tags: Result<&Tags, &str>,
        length_max: u32,
    ) -> Result<Assembly, PmlError> {
        if prompt.schema != self.name {
            return Err(prompt.place.error(format!("the prompt is for the schema `{}`", prompt.schema)));
        }
        let words = Words { tokenizer, tags };
        let mut written = prompt.parts.clone();
        if let Ok(tags) = tags {
            trim_prompt(&mut written, tags);
        }
        let mut parts = Vec::new();
        flatten(&written, words, &mut parts)?;
        let mut assembler = Assembler {
            layout: self,
            words,
            stretches: Vec::new(),
            moved: 0,
            cursor: 0,
            length_max,
            place: prompt.place,
            plain: Text::default(),
        };
        let level = Level::new(&self.nodes, &parts, "the schema")?;
        let mut text = assembler.level(&self.nodes, level, &[])?;
        if let Some(place) = first_message(&prompt.parts).or(self.first_message.map(|_| prompt.place)) {
            text.markup(&words.tags(place)?.answer);
        }
        assembler.text(text)?;
        assembler.end()
    }
}

impl Assembly {
    /// The tokens of the same prompt as one text, in which all that follows sees what stands before it: for
    /// servers, which know nothing of sections. It is the prompt that a chat with its messages has; one
    /// without messages is that of a completion.
    pub fn plain(&self, tokenizer: &dyn Tokenizer, tags: Result<&Tags, &str>) -> Vec<TokenId> {
        let (mut text, mut tokens) = match (self.plain.first(), tags) {
            (Some(_), Ok(tags)) => (self.plain.begun(tags), Vec::new()),
            _ => (self.plain.clone(), tokenizer.prompt_start()),
        };
        tokens.extend(text.take(tokenizer, true));
        tokens
    }
}

/// A prompt's part, messages taken apart.
enum Flat<'a> {
    Text(Text),
    Import(&'a Import),
}

fn flatten<'a>(parts: &'a [PromptPart], words: Words<'_>, flat: &mut Vec<Flat<'a>>) -> Result<(), PmlError> {
    for part in parts {
        match part {
            PromptPart::Text(text, _) => text_of(flat).data(text),
            PromptPart::Import(import) => flat.push(Flat::Import(import)),
            PromptPart::Message(role, parts, place) => {
                text_of(flat).open(*role, words.tags(*place)?);
                flatten(parts, words, flat)?;
                text_of(flat).markup(words.tags(*place)?.close(*role));
            }
        }
    }
    Ok(())
}

/// The text at the end.
fn text_of<'a, 'b>(flat: &'b mut Vec<Flat<'a>>) -> &'b mut Text {
    if !matches!(flat.last(), Some(Flat::Text(_))) {
        flat.push(Flat::Text(Text::default()));
    }
    match flat.last_mut() {
        Some(Flat::Text(text)) => text,
        _ => unreachable!("a text was just pushed where there was none"),
    }
}

/// Where the first message stands.
fn first_message(parts: &[PromptPart]) -> Option<TextPosition> {
    parts.iter().find_map(|part| match part {
        PromptPart::Message(_, _, place) => Some(*place),
        PromptPart::Text(..) => None,
        PromptPart::Import(import) => first_message(&import.parts),
    })
}

/// What a prompt says about one module, or about the schema.
struct Level<'a> {
    /// Text before the first import, and its name.
    lead: Option<(Text, &'a str)>,
    imports: BTreeMap<&'a str, (&'a Import, Text)>,
    /// Text at the end.
    tail: Text,
}

impl<'a> Level<'a> {
    fn new(nodes: &[Node], parts: &[Flat<'a>], owner: &str) -> Result<Self, PmlError> {
        let mut level = Level { lead: None, imports: BTreeMap::new(), tail: Text::default() };
        let mut pending = Text::default();
        let mut last: Option<&'a Import> = None;
        for part in parts {
            match part {
                Flat::Text(text) => pending.append(text),
                Flat::Import(import) => {
                    let text = std::mem::take(&mut pending);
                    match last {
                        None => level.lead = Some((text, &import.name)),
                        Some(before) => level.add(before, text)?,
                    }
                    last = Some(import);
                }
            }
        }
        if let Some(import) = last {
            level.add(import, Text::default())?;
        }
        level.tail = pending;
        let known = names(nodes);
        for part in parts {
            if let Flat::Import(import) = part
                && !known.contains(import.name.as_str())
            {
                return Err(import.place.error(format!("no such module: {owner} has no `{}`", import.name)));
            }
        }
        check_unions(nodes, &level.imports)?;
        Ok(level)
    }

    fn add(&mut self, import: &'a Import, behind: Text) -> Result<(), PmlError> {
        match self.imports.insert(&import.name, (import, behind)) {
            None => Ok(()),
            Some(_) => Err(import.place.error(format!("the module `{}` is imported twice", import.name))),
        }
    }
}

/// The modules of a scope.
fn names(nodes: &[Node]) -> BTreeSet<&str> {
    let candidates = nodes.iter().flat_map(|node| match node {
        Node::Union { members, .. } => members.as_slice(),
        node => std::slice::from_ref(node),
    });
    candidates.filter_map(name).collect()
}

fn name(node: &Node) -> Option<&str> {
    match node {
        Node::Module { name, .. } => Some(name),
        _ => None,
    }
}

/// Refuses two members of one union; the one that is named later is to blame.
fn check_unions(nodes: &[Node], imports: &BTreeMap<&str, (&Import, Text)>) -> Result<(), PmlError> {
    for node in nodes {
        let Node::Union { members, .. } = node else { continue };
        let taken = members.iter().filter_map(|member| match member {
            Node::Module { name, .. } => imports.get(name.as_str()).map(|(import, _)| *import),
            _ => None,
        });
        let mut taken: Vec<&Import> = taken.collect();
        taken.sort_by_key(|import| (import.place.line, import.place.column));
        if let [first, second, ..] = taken[..] {
            let reason = format!("`{}` excludes `{}`: a union gives one module", first.name, second.name);
            return Err(second.place.error(reason));
        }
    }
    Ok(())
}

struct Assembler<'a> {
    layout: &'a Layout,
    words: Words<'a>,
    stretches: Vec<Stretch>,
    /// By how much the rest of the schema has moved on.
    moved: u32,
    /// The next free position.
    cursor: u32,
    length_max: u32,
    /// Of what is being placed: an import, or the whole prompt.
    place: TextPosition,
    /// The whole so far, as one text.
    plain: Text,
}

impl Assembler<'_> {
    /// Places a level and returns what stands at its end.
    fn level(
        &mut self,
        nodes: &[Node],
        mut level: Level<'_>,
        arguments: &[Argument<'_>],
    ) -> Result<Text, PmlError> {
        for node in nodes {
            match node {
                Node::Piece(unit, piece) => self.piece(*unit, *piece)?,
                Node::Param(param) => self.argument(param, arguments)?,
                Node::Module { .. } => self.module(node, &mut level)?,
                Node::Union { members, .. } => {
                    members.iter().try_for_each(|member| self.module(member, &mut level))?;
                }
            }
        }
        Ok(level.tail)
    }

    fn module(&mut self, node: &Node, level: &mut Level<'_>) -> Result<(), PmlError> {
        let Node::Module { name, nodes, unit, .. } = node else { return Ok(()) };
        let Some((import, behind)) = level.imports.remove(name.as_str()) else { return Ok(()) };
        if let Some((text, _)) = level.lead.take_if(|(_, first)| first == name) {
            self.text(text)?;
        }
        let arguments = arguments(import, nodes, *unit)?;
        let mut parts = Vec::new();
        flatten(&import.parts, self.words, &mut parts)?;
        let inner = Level::new(nodes, &parts, &format!("the module `{name}`"))?;
        let outer = std::mem::replace(&mut self.place, import.place);
        let mut text = self.level(nodes, inner, &arguments)?;
        text.append(&behind);
        self.text(text)?;
        self.place = outer;
        Ok(())
    }

    /// Places a piece of the schema; what stands in for an argument stays away.
    fn piece(&mut self, unit: usize, number: usize) -> Result<(), PmlError> {
        let Unit { path, is_cached, pieces, .. } = &self.layout.units[unit];
        let piece = &pieces[number];
        let start = self.place(piece.start, piece.tokens.len())?;
        if *is_cached && !self.layout.can_shift && start != piece.start {
            let what = path.last().map_or("the schema's own text".to_owned(), |name| format!("`{name}`"));
            let reason = format!(
                "the text before {what} moves it from position {} to {start}, and this model's positions are learned: \
                 what was computed at one cannot be read at another",
                piece.start
            );
            return Err(self.place.error(reason));
        }
        self.plain.append(&piece.text);
        self.stretches.push(Stretch::Piece { unit, piece: number, start, tokens: piece.tokens.len() });
        Ok(())
    }

    fn argument(&mut self, param: &Param, arguments: &[Argument<'_>]) -> Result<(), PmlError> {
        let Some(argument) = arguments.iter().find(|argument| argument.name == param.name) else {
            return Ok(());
        };
        let tokens = self.words.tokenizer.encode_data(argument.value);
        if self.layout.bounds_arguments && tokens.len() > param.length as usize {
            let (found, room) = (tokens.len(), param.length);
            let reason = format!("`{}` has {found} tokens; the parameter has room for {room}", param.name);
            return Err(argument.place.error(reason));
        }
        if tokens.is_empty() {
            return Ok(());
        }
        let start = self.place(param.start, tokens.len())?;
        self.plain.data(argument.value);
        self.new_tokens(start, tokens);
        Ok(())
    }

    /// Places text behind what stands before it.
    fn text(&mut self, mut text: Text) -> Result<(), PmlError> {
        self.plain.append(&text);
        let tokens = text.take(self.words.tokenizer, self.stretches.is_empty());
        if tokens.is_empty() {
            return Ok(());
        }
        let start = self.cursor;
        self.advance(start, tokens.len())?;
        self.new_tokens(start, tokens);
        Ok(())
    }

    fn new_tokens(&mut self, at: u32, tokens: Vec<TokenId>) {
        if let Some(Stretch::New { start, tokens: last }) = self.stretches.last_mut()
            && *start as usize + last.len() == at as usize
        {
            last.extend(tokens);
            return;
        }
        self.stretches.push(Stretch::New { start: at, tokens });
    }

    /// The place of something that the schema puts at `start`.
    fn place(&mut self, start: u32, tokens: usize) -> Result<u32, PmlError> {
        let natural = start.saturating_add(self.moved);
        let place = natural.max(self.cursor);
        self.moved += place - natural;
        self.advance(place, tokens)?;
        Ok(place)
    }

    fn advance(&mut self, start: u32, tokens: usize) -> Result<(), PmlError> {
        let end = u32::try_from(tokens).ok().and_then(|tokens| start.checked_add(tokens));
        let limit = self.length_max;
        let too_long = || {
            self.place
                .error(format!("the prompt up to here needs more than the {limit} positions that there are"))
        };
        self.cursor = end.filter(|end| *end <= limit).ok_or_else(too_long)?;
        Ok(())
    }

    /// The whole: its last token is new, for an answer follows from a token that is computed.
    fn end(mut self) -> Result<Assembly, PmlError> {
        match self.stretches.last_mut() {
            None => return Err(self.place.error("the prompt is empty")),
            Some(Stretch::New { .. }) => {}
            Some(Stretch::Piece { unit, piece, start, tokens }) => {
                let last = *tokens - 1;
                let token = self.layout.units[*unit].pieces[*piece].tokens[last];
                let at = *start + u32::try_from(last).expect("a position is a u32");
                *tokens = last;
                if last == 0 {
                    self.stretches.pop();
                }
                self.stretches.push(Stretch::New { start: at, tokens: vec![token] });
            }
        }
        Ok(Assembly { stretches: self.stretches, end: self.cursor, plain: self.plain })
    }
}

/// A parameter's argument.
struct Argument<'a> {
    name: &'a str,
    value: &'a str,
    place: TextPosition,
}

/// The arguments of an import; each belongs to a parameter of its module.
fn arguments<'a>(import: &'a Import, nodes: &[Node], of: usize) -> Result<Vec<Argument<'a>>, PmlError> {
    let known = |name: &str| {
        nodes.iter().any(|node| matches!(node, Node::Param(param) if param.name == name && param.unit == of))
    };
    let argument = |(name, value): &'a (String, String)| {
        if known(name) {
            return Ok(Argument { name, value, place: import.place });
        }
        Err(import.place.error(format!("the module `{}` has no parameter `{name}`", import.name)))
    };
    import.arguments.iter().map(argument).collect()
}
