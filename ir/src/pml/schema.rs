//! A schema: prompt modules and how they stand to each other (Prompt Cache, sections 3.2.1 to 3.2.3).

use std::collections::BTreeSet;

use base::Role;

use super::document::{Content, PmlElement, PmlError, TextPosition, with_root};

/// Positions that a parameter can reserve.
const LENGTH_MAX: u32 = 65_536;

/// A schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub name: String,
    /// How many of a module's first tokens a prompt computes again, where the module does not say
    /// (`repair="16"`).
    pub repair: Option<u32>,
    /// What stands in it. Text here is always part of a prompt.
    pub parts: Vec<SchemaPart>,
}

/// What stands in a schema or a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaPart {
    /// Text that belongs to the module around it.
    Text(String, TextPosition),
    /// A message of a conversation.
    Message(Role, Vec<SchemaPart>, TextPosition),
    /// A place for an argument.
    Parameter(Parameter),
    /// A module inside.
    Module(Module),
    /// Modules of which a prompt takes one at most.
    Union(Union),
}

/// Text that a prompt can import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name, the only one in its scope.
    pub name: String,
    /// False where its keys and values are computed in every prompt (`cache="false"`).
    pub is_cached: bool,
    /// How many of its first tokens a prompt computes again where they stand (`repair="16"`).
    pub repair: Option<u32>,
    /// What stands in it.
    pub parts: Vec<SchemaPart>,
    /// Where it begins.
    pub place: TextPosition,
}

/// A place for an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, the only one in its module.
    pub name: String,
    /// Positions that it reserves: most tokens of an argument.
    pub length: u32,
    /// What stands in for an argument while the module is encoded, where that is not white space.
    pub scaffold: Option<String>,
    /// Where it begins.
    pub place: TextPosition,
}

/// Modules of which a prompt takes one at most; all begin at the same position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Union {
    /// The modules; never none.
    pub modules: Vec<Module>,
    /// Where it begins.
    pub place: TextPosition,
}

/// What a scope has used so far: the names of modules, and of the parameters of the innermost module.
#[derive(Default)]
struct Scope {
    modules: BTreeSet<String>,
    parameters: BTreeSet<String>,
}

/// Where a part stands.
#[derive(Clone, Copy)]
struct Inside {
    module: bool,
    message: bool,
}

impl Schema {
    /// Reads a schema.
    pub fn parse(text: &str) -> Result<Self, PmlError> {
        with_root(text, |root| {
            if root.tag() != "schema" {
                return Err(root
                    .place()
                    .error(format!("a schema begins with <schema>, not <{}>", root.tag())));
            }
            root.only(&["name", "repair"])?;
            let inside = Inside { module: false, message: false };
            let (name, repair) = (root.name("name")?, repair(root)?);
            Ok(Self { name, repair, parts: parts(root, inside, &mut Scope::default())? })
        })
    }
}

fn parts(element: PmlElement<'_>, inside: Inside, scope: &mut Scope) -> Result<Vec<SchemaPart>, PmlError> {
    let part = |content| match content {
        Content::Text(text, place) => Ok(SchemaPart::Text(text, place)),
        Content::Element(child) => part(child, inside, scope),
    };
    element.contents()?.into_iter().map(part).collect()
}

fn part(element: PmlElement<'_>, inside: Inside, scope: &mut Scope) -> Result<SchemaPart, PmlError> {
    let place = element.place();
    if let Some(role) = element.role() {
        if inside.message {
            return Err(place.error(format!("<{}> stands inside another message", element.tag())));
        }
        element.only(&[])?;
        return Ok(SchemaPart::Message(
            role,
            parts(element, Inside { message: true, ..inside }, scope)?,
            place,
        ));
    }
    match element.tag() {
        "module" => module(element, inside, scope).map(SchemaPart::Module),
        "union" => union(element, inside, scope).map(SchemaPart::Union),
        "parameter" | "param" if inside.module => parameter(element, scope).map(SchemaPart::Parameter),
        "parameter" | "param" => Err(place.error("a parameter stands in a module, not in the schema itself")),
        other => Err(place.error(format!("unknown tag <{other}>; write `<` in text as `&lt;`"))),
    }
}

fn module(element: PmlElement<'_>, inside: Inside, scope: &mut Scope) -> Result<Module, PmlError> {
    element.only(&["name", "cache", "repair"])?;
    let (name, place) = (element.name("name")?, element.place());
    if !scope.modules.insert(name.clone()) {
        return Err(place.error(format!("there are two modules `{name}` in one scope")));
    }
    let is_cached = match element.attribute("cache") {
        None | Some("true") => true,
        Some("false") => false,
        Some(other) => return Err(place.error(format!("`cache` must be true or false, not `{other}`"))),
    };
    let parts = parts(element, Inside { module: true, ..inside }, &mut Scope::default())?;
    Ok(Module { name, is_cached, repair: repair(element)?, parts, place })
}

/// How many first tokens are computed again.
fn repair(element: PmlElement<'_>) -> Result<Option<u32>, PmlError> {
    let Some(text) = element.attribute("repair") else { return Ok(None) };
    match text.parse() {
        Ok(tokens) if tokens <= LENGTH_MAX => Ok(Some(tokens)),
        _ => Err(element
            .place()
            .error(format!("`repair` must be from 0 to {LENGTH_MAX} tokens, not `{text}`"))),
    }
}

fn union(element: PmlElement<'_>, inside: Inside, scope: &mut Scope) -> Result<Union, PmlError> {
    element.only(&["scaffold"])?;
    let place = element.place();
    let mut modules = Vec::new();
    for content in element.contents()? {
        match content {
            Content::Element(child) if child.tag() == "module" => modules.push(module(child, inside, scope)?),
            Content::Element(child) => {
                return Err(child
                    .place()
                    .error(format!("a union holds modules only, not <{}>", child.tag())));
            }
            Content::Text(_, place) => return Err(place.error("a union holds modules only, not text")),
        }
    }
    if modules.is_empty() {
        return Err(place.error("a union holds at least one module"));
    }
    // What the reference implementation encodes the others beside; here modules see only themselves.
    if let Some(name) = element.attribute("scaffold")
        && !modules.iter().any(|module| module.name == name)
    {
        return Err(place.error(format!("`scaffold` names `{name}`, which is not in the union")));
    }
    Ok(Union { modules, place })
}

fn parameter(element: PmlElement<'_>, scope: &mut Scope) -> Result<Parameter, PmlError> {
    element.only(&["name", "len", "length", "scaffold"])?;
    let (name, place) = (element.name("name")?, element.place());
    if !scope.parameters.insert(name.clone()) {
        return Err(place.error(format!("there are two parameters `{name}` in one module")));
    }
    if !element.contents()?.is_empty() {
        return Err(place.error("a parameter is empty; its argument comes with the prompt"));
    }
    let text = match (element.attribute("len"), element.attribute("length")) {
        (Some(length), None) | (None, Some(length)) => length,
        (Some(_), Some(_)) => return Err(place.error("`len` and `length` mean the same: write one")),
        (None, None) => return Err(place.error(format!("the parameter `{name}` has no `length`"))),
    };
    let length = text.parse().ok().filter(|length| (1..=LENGTH_MAX).contains(length));
    let Some(length) = length else {
        return Err(place.error(format!("`length` must be from 1 to {LENGTH_MAX} tokens, not `{text}`")));
    };
    Ok(Parameter { name, length, scaffold: element.attribute("scaffold").map(str::to_owned), place })
}
