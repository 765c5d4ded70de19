//! What a plan comes down to when it runs exactly: sections of text and fields over one table.
//!
//! `Plus` and `Cross` run in the order they are written, which is one of the orders they allow and
//! needs no approximation. What cannot be expressed so (a generation inside a prompt, a table inside
//! a table) is refused by name.

use base::{Generation, Role};

use crate::error::IrError;
use crate::plan::{Plan, Table};
use crate::template::unknown_column;

/// A prompt's sections and the table they are filled from.
pub(crate) struct PromptShape<'a> {
    /// Messages; or one section without a role, a raw prompt.
    pub(crate) sections: Vec<Section<'a>>,
    /// `None`: one row without cells.
    pub(crate) table: Option<&'a Table>,
    /// How every row is answered.
    pub(crate) generation: &'a Generation,
}

/// A message, or a raw prompt.
pub(crate) struct Section<'a> {
    /// Who speaks; `None` in a raw prompt.
    pub(crate) role: Option<Role>,
    pub(crate) parts: Vec<ContentPart<'a>>,
}

/// A part of a section's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ContentPart<'a> {
    /// Text of the template.
    Text(&'a str),
    /// The cell at this position of the row.
    Field(usize),
    /// The cells at these positions, with their names.
    Record(Vec<(u16, &'a str)>),
}

impl Section<'_> {
    /// Whether every row has the same content.
    pub(crate) fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, ContentPart::Text(_)))
    }
}

impl<'a> PromptShape<'a> {
    /// The shape of a plan.
    pub(crate) fn of(plan: &'a Plan) -> Result<Self, IrError> {
        let mut walk = Walk::default();
        walk.enter(plan)?;
        let generation = walk.generation.ok_or(IrError::NoGenerate)?;
        let raw = walk.sections.iter().filter(|section| section.role.is_none()).count();
        if raw > 0 && raw < walk.sections.len() {
            return Err(IrError::MixedPrompt);
        }
        Ok(Self { sections: walk.sections, table: walk.table, generation })
    }
}

/// The state of a walk in reading order.
#[derive(Default)]
struct Walk<'a> {
    sections: Vec<Section<'a>>,
    table: Option<&'a Table>,
    generation: Option<&'a Generation>,
    in_message: bool,
}

impl<'a> Walk<'a> {
    fn enter(&mut self, plan: &'a Plan) -> Result<(), IrError> {
        match plan {
            Plan::Text(text) => self.push(ContentPart::Text(text)),
            Plan::Field(name) => {
                let position = self.position(name)?;
                self.push(ContentPart::Field(position));
            }
            Plan::Record(columns) => {
                let entry = |name: &'a String| {
                    let position = u16::try_from(self.position(name)?);
                    Ok((
                        position.map_err(|_| IrError::Unsupported("a record of over 65,535 columns"))?,
                        name.as_str(),
                    ))
                };
                let entries = columns.iter().map(entry).collect::<Result<_, IrError>>()?;
                self.push(ContentPart::Record(entries));
            }
            Plan::Message(role, content) => {
                if self.in_message {
                    return Err(IrError::Unsupported("a message inside a message"));
                }
                self.sections.push(Section { role: Some(*role), parts: Vec::new() });
                self.in_message = true;
                self.enter(content)?;
                self.in_message = false;
            }
            Plan::Seq(children) | Plan::Plus(children) | Plan::Cross(children) => {
                for child in children {
                    self.enter(child)?;
                }
            }
            Plan::Generate { input, generation } => {
                if self.generation.replace(generation).is_some() {
                    return Err(IrError::Unsupported("more than one `generate`"));
                }
                self.enter(input)?;
            }
            Plan::Map { template, rows } => {
                if self.table.replace(rows).is_some() {
                    return Err(IrError::Unsupported("more than one `map`"));
                }
                self.enter(template)?;
            }
        }
        Ok(())
    }

    /// Position of the column with this name.
    fn position(&self, name: &str) -> Result<usize, IrError> {
        let columns = self.table.map_or(&[][..], |table| &table.columns);
        let position = columns.iter().position(|column| column == name);
        position.ok_or_else(|| unknown_column(name, columns).into())
    }

    fn push(&mut self, part: ContentPart<'a>) {
        match self.sections.last_mut() {
            Some(section) if self.in_message || section.role.is_none() => section.parts.push(part),
            _ => self.sections.push(Section { role: None, parts: vec![part] }),
        }
    }
}
