//! The Prompt Markup Language (Prompt Cache, section 3.2): schemas of prompt modules, and prompts made of
//! them.
//!
//! [`Schema`] and [`PmlPrompt`] are what the text says, [`Layout`] gives a schema's text its tokens and
//! positions (section 3.3), and [`Layout::assemble`] what a prompt imports, what it adds, and where (section
//! 3.4). Files are never read, entities never declared, and what cannot be used is refused with its line and
//! column. Must not know where keys and values lie, nor when they are computed.

mod assemble;
mod document;
mod ends;
mod layout;
mod prompt;
mod schema;
mod sections;
#[cfg(test)]
mod tests;

pub use assemble::{Assembly, Stretch};
pub use document::{PmlError, TextPosition};
pub use layout::{Layout, Node, Param, Piece, Positions, Unit};
pub use prompt::{Import, PmlPrompt, PromptPart};
pub use schema::{Module, Parameter, Schema, SchemaPart, Union};
pub use sections::Encoding;

pub use crate::conversation::{Sectioned, Tags};
