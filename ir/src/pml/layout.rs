//! Tokens and positions of a schema (Prompt Cache, section 3.3).
//!
//! A module begins where what stands before it ends; the members of a union begin at one position and the
//! longest makes the union's length; a parameter reserves its length. A module's own text is cut where
//! another module or a parameter stands in it: each [`Piece`] has keys and values of its own, computed seeing
//! the earlier pieces of its [`Unit`] and nothing else.

use base::{MarkupPart, Role, TokenId, Tokenizer};

use super::document::{PmlError, TextPosition};
use super::ends::trim_schema;
use super::schema::{Module, Parameter, Schema, SchemaPart, Union};
use crate::conversation::{Tags, Text};

/// A schema with its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The schema's name.
    pub name: String,
    /// What is encoded on its own: the schema's own text first, then its modules in order.
    pub units: Vec<Unit>,
    /// What stands in the schema.
    pub nodes: Vec<Node>,
    /// Positions that it takes.
    pub length: u32,
    /// Where its first message stands, if it has one.
    pub first_message: Option<TextPosition>,
    /// Whether keys that were computed at one position can be read at another.
    pub can_shift: bool,
    /// Whether an argument may not be longer than its parameter.
    pub bounds_arguments: bool,
}

/// What a model can do with positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Most of them.
    pub length_max: u32,
    /// Whether keys that were computed at one can be read at another: rotary ones can, learned ones cannot.
    pub can_shift: bool,
    /// Whether an argument may not be longer than its parameter; not where tokens here are none of the
    /// model's.
    pub bounds_arguments: bool,
}

/// Text that is encoded together: of a module, or of the schema itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The names from the outermost module to this one; empty for the schema's own text.
    pub path: Vec<String>,
    /// Whether its keys and values are kept.
    pub is_cached: bool,
    /// How many of its first tokens prompts compute again, where its schema says.
    pub repair: Option<u32>,
    /// Its text, in order.
    pub pieces: Vec<Piece>,
}

/// Consecutive tokens of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Position of the first.
    pub start: u32,
    /// The tokens; never none.
    pub tokens: Vec<TokenId>,
    /// Whether they only stand in for an argument.
    pub is_placeholder: bool,
    /// What they say, but for what stands in front of a whole prompt; of a placeholder nothing.
    pub(super) text: Text,
}

/// What stands in a schema, with its positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Piece of a unit: their numbers.
    Piece(usize, usize),
    /// A place for an argument.
    Param(Param),
    Module {
        name: String,
        /// Its unit's number.
        unit: usize,
        /// What stands in it.
        nodes: Vec<Node>,
        /// Its first position.
        start: u32,
        /// The position behind its last.
        end: u32,
    },
    /// Modules, of which one is taken at most.
    Union {
        /// The modules.
        members: Vec<Node>,
        /// The position behind the longest.
        end: u32,
    },
}

/// A parameter with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    pub name: String,
    /// Number of the unit that it belongs to.
    pub unit: usize,
    /// First reserved position.
    pub start: u32,
    /// Reserved positions.
    pub length: u32,
}

/// How text becomes tokens.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) tokenizer: &'a dyn Tokenizer,
    /// The markup of messages, or why the model has none.
    pub(super) tags: Result<&'a Tags, &'a str>,
}

impl Words<'_> {
    /// The markup, for the message at `place`.
    pub(super) fn tags(&self, place: TextPosition) -> Result<&Tags, PmlError> {
        self.tags.map_err(|reason| place.error(reason))
    }
}

impl Layout {
    /// Gives a schema's text its tokens and positions. Where it has messages and the model no `tags`, their
    /// reason is the error's.
    pub fn new(
        schema: &Schema,
        tokenizer: &dyn Tokenizer,
        tags: Result<&Tags, &str>,
        positions: Positions,
    ) -> Result<Self, PmlError> {
        let Positions { length_max, can_shift, bounds_arguments } = positions;
        let first = first_message(&schema.parts);
        let mut parts = schema.parts.clone();
        if let Ok(tags) = tags {
            trim_schema(&mut parts, tags);
        }
        let mut builder = LayoutBuilder {
            words: Words { tokenizer, tags },
            units: vec![Unit {
                path: Vec::new(),
                is_cached: true,
                repair: schema.repair,
                pieces: Vec::new(),
            }],
            at: 0,
            is_first: true,
            lead: Text::default(),
            length_max,
            here: TextPosition { line: 1, column: 1 },
            end: None,
        };
        // A conversation begins as the template begins it, a raw prompt as the tokenizer does.
        if let Some((role, place)) = first {
            builder.lead.markup(builder.words.tags(place)?.before(Some(role)));
        } else {
            let start: Vec<_> = tokenizer.prompt_start().into_iter().map(MarkupPart::Special).collect();
            builder.lead.markup(&start);
        }
        let nodes = builder.nodes(0, &parts)?;
        let LayoutBuilder { units, at: length, end, .. } = builder;
        if let Some(place) = end {
            let over = length.saturating_sub(length_max);
            return Err(place.error(format!(
                "here end the {length_max} positions that there are; the schema needs {length}, {over} too many"
            )));
        }
        let first_message = first.map(|(_, place)| place);
        let name = schema.name.clone();
        Ok(Self { name, units, nodes, length, first_message, can_shift, bounds_arguments })
    }
}

/// Whose message comes first, whatever a prompt leaves out, and where it stands.
fn first_message(parts: &[SchemaPart]) -> Option<(Role, TextPosition)> {
    parts.iter().find_map(|part| match part {
        SchemaPart::Message(role, _, place) => Some((*role, *place)),
        SchemaPart::Text(..) | SchemaPart::Parameter(_) => None,
        SchemaPart::Module(module) => first_message(&module.parts),
        SchemaPart::Union(union) => union.modules.iter().find_map(|module| first_message(&module.parts)),
    })
}

struct LayoutBuilder<'a> {
    words: Words<'a>,
    units: Vec<Unit>,
    /// The next position.
    at: u32,
    /// Whether nothing has been placed yet.
    is_first: bool,
    /// What stands in front of everything, until it is placed.
    lead: Text,
    /// Where the last text stands.
    here: TextPosition,
    /// Where the positions end that there are: what is behind is counted, and not placed.
    end: Option<TextPosition>,
    length_max: u32,
}

impl LayoutBuilder<'_> {
    /// Places what stands in a unit.
    fn nodes(&mut self, unit: usize, parts: &[SchemaPart]) -> Result<Vec<Node>, PmlError> {
        let (mut nodes, mut text) = (Vec::new(), Text::default());
        self.parts(unit, parts, &mut text, &mut nodes)?;
        self.end_piece(unit, &mut text, &mut nodes);
        Ok(nodes)
    }

    fn parts(
        &mut self,
        unit: usize,
        parts: &[SchemaPart],
        text: &mut Text,
        nodes: &mut Vec<Node>,
    ) -> Result<(), PmlError> {
        for part in parts {
            match part {
                SchemaPart::Text(words, place) => {
                    self.here = *place;
                    text.data(words);
                }
                SchemaPart::Message(role, parts, place) => {
                    text.open(*role, self.words.tags(*place)?);
                    self.parts(unit, parts, text, nodes)?;
                    text.markup(self.words.tags(*place)?.close(*role));
                }
                SchemaPart::Parameter(parameter) => {
                    self.end_piece(unit, text, nodes);
                    nodes.push(self.parameter(unit, parameter)?);
                }
                SchemaPart::Module(module) => {
                    self.end_piece(unit, text, nodes);
                    nodes.push(self.module(unit, module)?);
                }
                SchemaPart::Union(union) => {
                    self.end_piece(unit, text, nodes);
                    nodes.push(self.union(unit, union)?);
                }
            }
        }
        Ok(())
    }

    /// Makes a piece of the text so far.
    fn end_piece(&mut self, unit: usize, text: &mut Text, nodes: &mut Vec<Node>) {
        let mut whole = std::mem::take(&mut self.lead);
        match (text.first(), self.words.tags) {
            (Some(Role::System), Ok(tags)) if self.is_first => whole = text.begun(tags),
            _ => whole.append(text),
        }
        let tokens = whole.take(self.words.tokenizer, self.is_first);
        let text = std::mem::take(text);
        if !tokens.is_empty() {
            let piece = Piece { start: self.at, tokens, is_placeholder: false, text };
            nodes.push(self.piece(unit, piece, self.here));
        }
    }

    fn piece(&mut self, unit: usize, piece: Piece, place: TextPosition) -> Node {
        self.advance(piece.tokens.len(), place);
        self.is_first = false;
        let pieces = &mut self.units[unit].pieces;
        pieces.push(piece);
        Node::Piece(unit, pieces.len() - 1)
    }

    fn advance(&mut self, tokens: usize, place: TextPosition) {
        self.at = self.at.saturating_add(u32::try_from(tokens).unwrap_or(u32::MAX));
        if self.at > self.length_max {
            self.end.get_or_insert(place);
        }
    }

    /// Reserves a parameter's positions and encodes what stands in for its argument.
    fn parameter(&mut self, unit: usize, parameter: &Parameter) -> Result<Node, PmlError> {
        let length = parameter.length as usize;
        let tokenizer = self.words.tokenizer;
        // The paper's <unk> is white space to the model; few models have such a token, all have a space.
        let mut tokens = tokenizer.encode_data(parameter.scaffold.as_deref().unwrap_or_default());
        let name = &parameter.name;
        let Some(missing) = length.checked_sub(tokens.len()) else {
            return Err(parameter.place.error(format!(
                "the scaffold of `{name}` has {} tokens, and its length is {length}",
                tokens.len()
            )));
        };
        // What finds no place is not made.
        let missing = if self.at.saturating_add(parameter.length) > self.length_max { 0 } else { missing };
        let space = tokenizer.encode_data(" ");
        tokens.extend(space.iter().copied().cycle().take(if space.is_empty() { 0 } else { missing }));
        let start = self.at;
        if !tokens.is_empty() {
            // No node: a prompt never takes it.
            let piece = Piece { start, tokens, is_placeholder: true, text: Text::default() };
            self.piece(unit, piece, parameter.place);
        }
        let param = Param { name: name.clone(), unit, start, length: parameter.length };
        self.at = start;
        self.advance(length, parameter.place);
        Ok(Node::Param(param))
    }

    fn module(&mut self, outer: usize, module: &Module) -> Result<Node, PmlError> {
        let mut path = self.units[outer].path.clone();
        path.push(module.name.clone());
        let unit = self.units.len();
        let is_cached = module.is_cached && self.units[outer].is_cached;
        let repair = module.repair.or(self.units[outer].repair);
        self.units.push(Unit { path, is_cached, repair, pieces: Vec::new() });
        let start = self.at;
        let nodes = self.nodes(unit, &module.parts)?;
        Ok(Node::Module { name: module.name.clone(), unit, nodes, start, end: self.at })
    }

    fn union(&mut self, outer: usize, union: &Union) -> Result<Node, PmlError> {
        let (start, mut end) = (self.at, self.at);
        let mut members = Vec::with_capacity(union.modules.len());
        for module in &union.modules {
            self.at = start;
            members.push(self.module(outer, module)?);
            end = end.max(self.at);
        }
        self.at = end;
        Ok(Node::Union { members, end })
    }
}
