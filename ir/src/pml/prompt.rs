//! A prompt: what it takes of a schema, and what it adds (Prompt Cache, sections 3.2.1 and 3.4).

use base::Role;

use super::document::{Content, PmlElement, PmlError, TextPosition, with_root};

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmlPrompt {
    /// The schema it is made from.
    pub schema: String,
    /// What it says, in order.
    pub parts: Vec<PromptPart>,
    /// Where it begins.
    pub place: TextPosition,
}

/// What a prompt says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptPart {
    Text(String, TextPosition),
    Message(Role, Vec<PromptPart>, TextPosition),
    /// A module of the schema.
    Import(Import),
}

/// A module that is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    pub name: String,
    /// Parameters and their arguments.
    pub arguments: Vec<(String, String)>,
    /// What is taken of, and added to, the module.
    pub parts: Vec<PromptPart>,
    /// Where it stands.
    pub place: TextPosition,
}

impl PmlPrompt {
    /// Reads a prompt.
    pub fn parse(text: &str) -> Result<Self, PmlError> {
        with_root(text, |root| {
            if root.tag() != "prompt" {
                return Err(root
                    .place()
                    .error(format!("a prompt begins with <prompt>, not <{}>", root.tag())));
            }
            root.only(&["schema"])?;
            let schema = root.required("schema")?.to_owned();
            Ok(Self { schema, parts: parts(root, false)?, place: root.place() })
        })
    }
}

fn parts(element: PmlElement<'_>, in_message: bool) -> Result<Vec<PromptPart>, PmlError> {
    let part = |content| match content {
        Content::Text(text, place) => Ok(PromptPart::Text(text, place)),
        Content::Element(child) => part(child, in_message),
    };
    element.contents()?.into_iter().map(part).collect()
}

fn part(element: PmlElement<'_>, in_message: bool) -> Result<PromptPart, PmlError> {
    let place = element.place();
    if let Some(role) = element.role() {
        if in_message {
            return Err(place.error(format!("<{}> stands inside another message", element.tag())));
        }
        element.only(&[])?;
        return Ok(PromptPart::Message(role, parts(element, true)?, place));
    }
    if let tag @ ("schema" | "prompt" | "module" | "union" | "parameter" | "param") = element.tag() {
        return Err(
            place.error(format!("<{tag}> belongs in a schema; a prompt imports a module by its name"))
        );
    }
    let arguments = element.attributes().map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(PromptPart::Import(Import {
        name: element.tag().to_owned(),
        arguments: arguments.collect(),
        parts: parts(element, in_message)?,
        place,
    }))
}
