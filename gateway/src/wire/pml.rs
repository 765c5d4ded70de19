//! `/v1/schemas` and `/v1/prompts` on the wire.

use ir::pml::{Layout, Node, PmlError, PmlPrompt};
use serde::Serialize;
use serving::error::RequestError;
use serving::model::Model;
use store::StoredSchema;
use utoipa::ToSchema;

use super::openai::{Common, finish_completion};
use crate::config::UnknownFields;
use crate::json::JsonFields;
use crate::wire::ValidationContext;
use crate::wire::relquery::{check_model, repair_tokens};
use crate::wire::usage::UsageReply;

/// A body of `POST /v1/schemas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaRequest {
    /// The schema's text.
    pub pml: String,
    /// Whether its modules stay in the engine's memory.
    pub is_pinned: bool,
}

/// A body of `POST /v1/prompts`.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptRequest {
    /// What all text routes take.
    pub common: Common,
    /// The prompt.
    pub prompt: PmlPrompt,
    /// First tokens of each module that are computed again; else its schema or the configuration says.
    pub repair_tokens: Option<u32>,
}

/// A thing of PML that is wrong, with its line and column, in the caller's terms.
pub fn pml_error(field: &str, error: &PmlError) -> RequestError {
    RequestError::invalid(field, error.to_string())
}

impl SchemaRequest {
    /// Reads and checks the fields.
    pub fn read(mut fields: JsonFields, context: ValidationContext<'_>) -> Result<Self, RequestError> {
        check_model(&mut fields, context.model)?;
        let Some(pml) = fields.string("schema")? else { return fields.bad("schema", "is required") };
        let (bytes, limit) = (pml.len() as u64, context.limits.schema_bytes_max.0);
        if bytes > limit {
            let limit = format!("{limit} bytes (limits.schema_bytes_max)");
            return Err(RequestError::TooLarge { what: format!("`schema` of {bytes} bytes"), limit });
        }
        let is_pinned = fields.bool("pin")?.unwrap_or(false);
        fields.finish()?;
        Ok(Self { pml, is_pinned })
    }
}

impl PromptRequest {
    /// Reads and checks the fields; `bytes_max` is what could fit the context.
    pub fn read(
        mut fields: JsonFields,
        context: ValidationContext<'_>,
        bytes_max: u64,
    ) -> Result<Self, RequestError> {
        // This is our own route: its fields are all known.
        let context = ValidationContext { unknown_fields: UnknownFields::Refuse, ..context };
        let common = Common::of_completion(&mut fields, context)?;
        let Some(text) = fields.string("prompt")? else { return fields.bad("prompt", "is required") };
        if text.len() as u64 > bytes_max {
            let found = text.len();
            return fields
                .bad("prompt", format!("has {found} bytes: more than {bytes_max} cannot fit the context"));
        }
        let prompt = PmlPrompt::parse(&text).map_err(|error| pml_error("prompt", &error))?;
        let repair_tokens = repair_tokens(&mut fields, context)?;
        finish_completion(fields, context.unknown_fields)?;
        Ok(Self { common, prompt, repair_tokens })
    }
}

/// A schema as it was registered.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SchemaReply {
    /// Always `schema`.
    pub object: &'static str,
    /// Its name: prompts are made from it by this.
    pub name: String,
    /// The model that its tokens and positions are of.
    pub model: String,
    /// When the first of this name was registered, unix seconds.
    pub created: u64,
    /// When this one was, unix seconds.
    pub updated: u64,
    /// Whether its modules are to stay in the engine's memory.
    pub pinned: bool,
    /// Whether they do: what had to give way, or was lost, is computed again with the next prompt. Absent
    /// where it is not pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// Positions that it takes: text behind all of it stands here.
    pub length: u32,
    /// Tokens of all its texts.
    pub tokens: u64,
    /// Its own text, which has no name, and its modules in order.
    pub modules: Vec<ModuleReply>,
    /// What computing its modules took; absent where that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageReply>,
    /// Its text; absent in the reply to its registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
}

/// A module with its positions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModuleReply {
    /// Its name; null for the schema's own text.
    pub name: Option<String>,
    /// The names from the outermost module to it.
    pub path: Vec<String>,
    /// Its first position; members of a union have the same.
    pub start: u32,
    /// The position behind its last.
    pub end: u32,
    /// Tokens of its own text, what stands in for arguments not counted.
    pub tokens: u64,
    /// Whether its keys and values are kept for prompts that import it; where servers run rows, their caches
    /// keep what they keep.
    pub cached: bool,
    /// Its parameters.
    pub parameters: Vec<ParameterReply>,
}

/// A parameter with its positions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ParameterReply {
    /// Its name.
    pub name: String,
    /// Its first position.
    pub start: u32,
    /// Most tokens of its argument.
    pub length: u32,
}

/// The names of a tenant's schemas.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SchemaList {
    /// Always `list`.
    pub object: &'static str,
    /// The schemas by name.
    pub data: Vec<SchemaEntry>,
}

/// A schema in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SchemaEntry {
    /// Always `schema`.
    pub object: &'static str,
    /// Its name.
    pub name: String,
    /// When the first of this name was registered, unix seconds.
    pub created: u64,
    /// When this one was, unix seconds.
    pub updated: u64,
    /// Whether its modules are to stay in the engine's memory.
    pub pinned: bool,
}

impl SchemaReply {
    /// A schema with its layout; `held` where it is pinned.
    pub fn new(layout: &Layout, model: &Model, (created, updated): (u64, u64), held: Option<bool>) -> Self {
        let mut modules = modules(layout);
        modules.iter_mut().for_each(|module| module.cached &= model.has_sections());
        Self {
            object: "schema",
            name: layout.name.clone(),
            model: model.name.clone(),
            created: created / 1_000,
            updated: updated / 1_000,
            pinned: held.is_some(),
            held,
            length: layout.length,
            tokens: modules.iter().map(|module| module.tokens).sum(),
            modules,
            usage: None,
            schema: None,
        }
    }
}

impl From<&StoredSchema> for SchemaEntry {
    fn from(schema: &StoredSchema) -> Self {
        Self {
            object: "schema",
            name: schema.name.clone(),
            created: schema.created.0 / 1_000,
            updated: schema.updated.0 / 1_000,
            pinned: schema.pinned.0 > 0,
        }
    }
}

/// The schema's own text and all modules, in order.
fn modules(layout: &Layout) -> Vec<ModuleReply> {
    let mut found = vec![module(layout, 0, &layout.nodes, (0, layout.length))];
    collect(layout, &layout.nodes, &mut found);
    found
}

fn collect(layout: &Layout, nodes: &[Node], found: &mut Vec<ModuleReply>) {
    for node in nodes {
        match node {
            Node::Piece(..) | Node::Param(_) => {}
            Node::Union { members, .. } => collect(layout, members, found),
            Node::Module { unit, nodes, start, end, .. } => {
                found.push(module(layout, *unit, nodes, (*start, *end)));
                collect(layout, nodes, found);
            }
        }
    }
}

fn module(layout: &Layout, number: usize, nodes: &[Node], (start, end): (u32, u32)) -> ModuleReply {
    let unit = &layout.units[number];
    let own = unit.pieces.iter().filter(|piece| !piece.is_placeholder);
    let parameters = nodes.iter().filter_map(|node| match node {
        Node::Param(param) => {
            Some(ParameterReply { name: param.name.clone(), start: param.start, length: param.length })
        }
        _ => None,
    });
    ModuleReply {
        name: unit.path.last().cloned(),
        path: unit.path.clone(),
        start,
        end,
        tokens: own.map(|piece| piece.tokens.len() as u64).sum(),
        cached: unit.is_cached,
        parameters: parameters.collect(),
    }
}

#[cfg(test)]
mod tests {
    use base::text::ByteText;
    use ir::pml::{Positions, Schema};

    use super::*;

    #[test]
    fn modules_are_shown_in_order_with_what_they_reserve() {
        let text = r#"<schema name="s">ab<union><module name="long">long<param name="p" len="3"/></module><module
            name="it" cache="false">it</module></union>c</schema>"#;
        let schema = Schema::parse(text).expect("valid");
        let positions = Positions { length_max: 100, can_shift: true, bounds_arguments: true };
        let layout = Layout::new(&schema, &ByteText, Err("none"), positions).expect("it fits");
        let shown: Vec<_> = modules(&layout)
            .into_iter()
            .map(|module| (module.path.join("/"), module.start, module.end, module.tokens, module.cached))
            .collect();
        assert_eq!(
            shown,
            [(String::new(), 0, 10, 3, true), ("long".into(), 2, 9, 4, true), ("it".into(), 2, 4, 2, false)]
        );
        let parameter = ParameterReply { name: "p".into(), start: 6, length: 3 };
        assert_eq!(modules(&layout)[1].parameters, [parameter]);
    }
}
