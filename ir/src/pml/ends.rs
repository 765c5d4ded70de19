//! The ends of messages, as the model's chat template writes them: where it trims contents, the first text of a
//! message and the last are trimmed.
//!
//! A module that a prompt puts at the end of a message keeps its white space: it is computed once, wherever it
//! will stand.

use base::Role;

use super::prompt::PromptPart;
use super::schema::SchemaPart;
use crate::conversation::Tags;

/// Trims the messages of a schema.
pub(super) fn trim_schema(parts: &mut [SchemaPart], tags: &Tags) {
    for part in parts {
        match part {
            SchemaPart::Text(..) | SchemaPart::Parameter(_) => {}
            SchemaPart::Message(role, parts, _) => {
                trim_outer(parts.first_mut(), &|text| tags.content_start(*role, text), |parts| {
                    parts.first_mut()
                });
                trim_outer(parts.last_mut(), &|text| tags.content_end(*role, text), |parts| parts.last_mut());
            }
            SchemaPart::Module(module) => trim_schema(&mut module.parts, tags),
            SchemaPart::Union(union) => {
                union.modules.iter_mut().for_each(|module| trim_schema(&mut module.parts, tags));
            }
        }
    }
}

/// Trims the text at one end of a message, also where it stands in modules there.
fn trim_outer(
    part: Option<&mut SchemaPart>,
    trim: &dyn Fn(&str) -> &str,
    next: fn(&mut [SchemaPart]) -> Option<&mut SchemaPart>,
) {
    match part {
        None | Some(SchemaPart::Parameter(_) | SchemaPart::Message(..)) => {}
        Some(SchemaPart::Text(text, _)) => *text = trim(text).to_owned(),
        Some(SchemaPart::Module(module)) => trim_outer(next(&mut module.parts), trim, next),
        Some(SchemaPart::Union(union)) => {
            union.modules.iter_mut().for_each(|module| trim_outer(next(&mut module.parts), trim, next));
        }
    }
}

/// Trims the messages of a prompt.
pub(super) fn trim_prompt(parts: &mut [PromptPart], tags: &Tags) {
    for part in parts {
        match part {
            PromptPart::Text(..) => {}
            PromptPart::Import(import) => trim_prompt(&mut import.parts, tags),
            PromptPart::Message(role, parts, _) => trim_message(parts, *role, tags),
        }
    }
}

fn trim_message(parts: &mut [PromptPart], role: Role, tags: &Tags) {
    if let Some(PromptPart::Text(text, _)) = parts.first_mut() {
        *text = tags.content_start(role, text).to_owned();
    }
    if let Some(PromptPart::Text(text, _)) = parts.last_mut() {
        *text = tags.content_end(role, text).to_owned();
    }
}
