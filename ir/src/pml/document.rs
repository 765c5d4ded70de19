//! PML as XML: a tree of elements and text, each with its place, and nothing of XML beyond that.

use base::Role;
use roxmltree::{Document, Node, ParsingOptions};

/// Elements, texts and comments of a document.
const NODES_MAX: u32 = 100_000;
/// Elements inside one another.
const DEPTH_MAX: usize = 64;
/// Characters of a name.
const NAME_MAX: usize = 128;
/// Tags with a meaning of their own, which no module can have for its name.
const RESERVED: [&str; 9] =
    ["schema", "prompt", "module", "union", "parameter", "param", "system", "user", "assistant"];

/// Where something stands in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextPosition {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// What is wrong with a document, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {reason}", place.line, place.column)]
pub struct PmlError {
    pub place: TextPosition,
    pub reason: String,
}

impl TextPosition {
    /// The error of a thing at this place.
    pub(super) fn error(self, reason: impl Into<String>) -> PmlError {
        PmlError { place: self, reason: reason.into() }
    }
}

/// An element.
#[derive(Clone, Copy)]
pub(super) struct PmlElement<'a> {
    node: Node<'a, 'a>,
    depth: usize,
    places: &'a TextPositions,
}

/// Where the nodes of a document begin, by offset: found in one pass, for the parser counts from the start
/// each time.
struct TextPositions(Vec<(usize, TextPosition)>);

impl TextPositions {
    fn of(document: &Document<'_>) -> Self {
        let mut starts: Vec<usize> = document.descendants().map(|node| node.range().start).collect();
        starts.sort_unstable();
        starts.dedup();
        let (mut places, mut place, mut at) =
            (Vec::with_capacity(starts.len()), TextPosition { line: 1, column: 1 }, 0);
        let text = document.input_text();
        for start in starts {
            for character in text[at..start].chars() {
                place = match character {
                    '\n' => TextPosition { line: place.line + 1, column: 1 },
                    _ => TextPosition { column: place.column + 1, ..place },
                };
            }
            at = start;
            places.push((start, place));
        }
        Self(places)
    }

    fn find(&self, node: &Node<'_, '_>) -> TextPosition {
        let start = node.range().start;
        let known = self.0.binary_search_by_key(&start, |(start, _)| *start);
        self.0[known.expect("every node of the document was counted")].1
    }
}

/// What stands in an element.
pub(super) enum Content<'a> {
    /// Text with more than white space in it.
    Text(String, TextPosition),
    Element(PmlElement<'a>),
}

/// Reads a document and gives its root to `read`.
pub(super) fn with_root<T>(
    text: &str,
    read: impl FnOnce(PmlElement<'_>) -> Result<T, PmlError>,
) -> Result<T, PmlError> {
    // A document type could declare entities that grow without end, or name files.
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| malformed(&error))?;
    let places = TextPositions::of(&document);
    read(PmlElement { node: document.root_element(), depth: 1, places: &places })
}

/// The parser's reason without the place, which stands in front.
fn malformed(error: &roxmltree::Error) -> PmlError {
    let at = error.pos();
    let reason = match error {
        roxmltree::Error::DtdDetected => {
            "a document type is not allowed, nor are entities of one's own".into()
        }
        roxmltree::Error::NodesLimitReached => format!("more than {NODES_MAX} elements and texts"),
        other => {
            let text = other.to_string();
            let place = format!(" at {}:{}", at.row, at.col);
            format!("not well-formed XML: {}", text.strip_suffix(&place).unwrap_or(&text))
        }
    };
    TextPosition { line: at.row, column: at.col }.error(reason)
}

impl<'a> PmlElement<'a> {
    /// Its tag.
    pub(super) fn tag(self) -> &'a str {
        self.node.tag_name().name()
    }

    /// Where it begins.
    pub(super) fn place(self) -> TextPosition {
        self.places.find(&self.node)
    }

    /// The role that its tag speaks for.
    pub(super) fn role(self) -> Option<Role> {
        [Role::System, Role::User, Role::Assistant].into_iter().find(|role| role.name() == self.tag())
    }

    /// An attribute's value.
    pub(super) fn attribute(self, name: &str) -> Option<&'a str> {
        self.node.attribute(name)
    }

    /// All attributes, as written.
    pub(super) fn attributes(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.node.attributes().map(|attribute| (attribute.name(), attribute.value()))
    }

    /// An attribute that must be there.
    pub(super) fn required(self, name: &str) -> Result<&'a str, PmlError> {
        let missing = || self.place().error(format!("<{}> has no `{name}`", self.tag()));
        self.attribute(name).ok_or_else(missing)
    }

    /// The attribute with the name of a schema, a module or a parameter.
    pub(super) fn name(self, attribute: &str) -> Result<String, PmlError> {
        let name = self.required(attribute)?;
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts || !name.chars().all(is_word) || name.len() > NAME_MAX {
            let rule = "must begin with a letter or `_` and go on with letters, digits, `_`, `.` and `-`";
            return Err(self.place().error(format!("`{name}`: a name {rule}, at most {NAME_MAX} in all")));
        }
        if RESERVED.contains(&name) {
            return Err(self
                .place()
                .error(format!("`{name}` has a meaning of its own and cannot be a name")));
        }
        Ok(name.to_owned())
    }

    /// Refuses attributes beside these.
    pub(super) fn only(self, known: &[&str]) -> Result<(), PmlError> {
        match self.attributes().find(|(name, _)| !known.contains(name)) {
            None => Ok(()),
            Some(("src", _)) => Err(self.place().error("`src`: text is not read from files; put it here")),
            Some((name, _)) => {
                Err(self.place().error(format!("<{}> has an unknown attribute `{name}`", self.tag())))
            }
        }
    }

    /// What stands in it, in order: comments and what is only white space are nothing.
    pub(super) fn contents(self) -> Result<Vec<Content<'a>>, PmlError> {
        if self.depth > DEPTH_MAX {
            return Err(self.place().error(format!("more than {DEPTH_MAX} elements inside one another")));
        }
        let mut contents: Vec<Content<'a>> = Vec::new();
        for node in self.node.children() {
            if node.is_pi() {
                return Err(self.places.find(&node).error("processing instructions are not allowed"));
            }
            if node.is_element() {
                if node.tag_name().namespace().is_some() {
                    return Err(self.places.find(&node).error("namespaces are not allowed"));
                }
                contents.push(Content::Element(PmlElement { node, depth: self.depth + 1, ..self }));
            } else if let Some(text) = node.text().filter(|_| node.is_text()) {
                match contents.last_mut() {
                    // A comment stood between them.
                    Some(Content::Text(before, _)) => before.push_str(text),
                    _ => contents.push(Content::Text(text.to_owned(), self.places.find(&node))),
                }
            }
        }
        contents.retain_mut(|content| match content {
            Content::Text(text, _) => {
                *text = trimmed(text);
                !text.is_empty()
            }
            Content::Element(_) => true,
        });
        Ok(contents)
    }
}

/// Text without the line breaks that are there for the tags' sake: white space with a line break in it, at
/// either end, is one line break. What is only white space is nothing.
fn trimmed(text: &str) -> String {
    let (left, right) = (text.trim_start(), text.trim_end());
    if left.is_empty() {
        return String::new();
    }
    let (head, tail) = (&text[..text.len() - left.len()], &text[right.len()..]);
    let end = |space: &str| if space.contains('\n') { "\n".to_owned() } else { space.to_owned() };
    end(head) + text.trim() + &end(tail)
}
