//! The span tree: what a prompt is made of, before any tokenizer has seen it.
//!
//! Order matters in `Seq`; the children of `Plus` commute; `Cross` attends to all before it. A
//! relQuery is a `Map` of one template over the rows of a table. Every way in builds this tree; the
//! tree knows nothing of who sent it.

use base::{Generation, Role};
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::error::IrError;
use crate::template::{Template, TemplatePart, check_distinct};

/// A span tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plan {
    /// Text, the same for every row.
    Text(String),
    /// The cell of the column with this name, in the row at hand.
    Field(String),
    /// The cells of these columns as a JSON object: a `Plus` of named cells, for their order says nothing. A
    /// row may have an order of its own ([`TableRow::record`]).
    Record(Vec<String>),
    /// A message of a conversation.
    Message(Role, Box<Plan>),
    /// Spans one after the other.
    Seq(Vec<Plan>),
    /// Spans whose order does not matter.
    Plus(Vec<Plan>),
    /// Spans that attend to all before them.
    Cross(Vec<Plan>),
    /// Text that the model writes after `input` (and after all that stands before it).
    Generate {
        /// What it answers.
        input: Box<Plan>,
        /// How it is generated.
        generation: Box<Generation>,
    },
    /// The template, once for each row.
    Map {
        /// The template; its fields name columns of `rows`.
        template: Box<Plan>,
        rows: Table,
    },
}

/// A table: the rows that a template is mapped over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Names of the columns, all different.
    pub columns: Vec<String>,
    /// The rows, in the order they are to run.
    pub rows: Vec<TableRow>,
}

/// A row. A ragged one (too few or too many cells) is kept: it fails alone, when it is lowered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRow {
    pub cells: Vec<Cell>,
    /// The input rows that its answer answers, ascending and never empty.
    pub answers: Vec<u32>,
    /// Positions of the columns that its prompt's record holds, in the order in which they stand there;
    /// empty: as the record names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub record: Vec<u16>,
}

impl TableRow {
    /// A row as it was sent.
    pub fn new(cells: Vec<Cell>, answers: Vec<u32>) -> Self {
        Self { cells, answers, record: Vec::new() }
    }
}

impl Table {
    /// A table as it was sent: every row answers itself.
    pub fn new(columns: Vec<String>, rows: Vec<Vec<Cell>>) -> Result<Self, IrError> {
        check_distinct(&columns)?;
        let limit = u32::MAX;
        if u32::try_from(rows.len()).is_err() {
            return Err(IrError::TooManyRows { rows: rows.len(), limit });
        }
        let rows = rows.into_iter().zip(0..).map(|(cells, row)| TableRow::new(cells, vec![row])).collect();
        Ok(Self { columns, rows })
    }

    /// How many input rows the table answers.
    pub fn answered(&self) -> usize {
        self.rows.iter().map(|row| row.answers.len()).sum()
    }

    /// Position of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

impl Plan {
    /// The plan of a relQuery: the template over the table, as a user message after an optional
    /// system message (`chat`), or as a raw prompt that the system text leads. System text is taken
    /// as it is; only the template has fields.
    pub fn relquery(
        template: &Template,
        system: Option<&str>,
        chat: bool,
        rows: Table,
        generation: Generation,
    ) -> Result<Self, IrError> {
        template.check_columns(&rows.columns)?;
        let body = Self::of_template(template, &rows.columns);
        let spans = match (system, chat) {
            (None, true) => vec![Self::message(Role::User, body)],
            (None, false) => vec![body],
            (Some(system), true) => {
                vec![Self::message(Role::System, Self::Text(system.into())), Self::message(Role::User, body)]
            }
            (Some(system), false) => vec![Self::Text(format!("{system}\n\n")), body],
        };
        let template = Self::Generate { input: Box::new(Self::Seq(spans)), generation: Box::new(generation) };
        Ok(Self::Map { template: Box::new(template), rows })
    }

    /// The same as a conversation: turns that were asked and answered, equal for all rows, then the template.
    pub fn guided(
        template: &Template,
        turns: &[(String, String)],
        rows: Table,
        generation: Generation,
    ) -> Result<Self, IrError> {
        template.check_columns(&rows.columns)?;
        let turn = |(asked, answer): &(String, String)| {
            let message = |role, text: &String| Self::message(role, Self::Text(text.clone()));
            [message(Role::User, asked), message(Role::Assistant, answer)]
        };
        let mut spans: Vec<Self> = turns.iter().flat_map(turn).collect();
        spans.push(Self::message(Role::User, Self::of_template(template, &rows.columns)));
        let template = Self::Generate { input: Box::new(Self::Seq(spans)), generation: Box::new(generation) };
        Ok(Self::Map { template: Box::new(template), rows })
    }

    /// The template over a table with these columns.
    fn of_template(template: &Template, columns: &[String]) -> Self {
        let parts = template.parts().iter().map(|part| match part {
            TemplatePart::Text(text) => Self::Text(text.clone()),
            TemplatePart::Field(name) => Self::Field(name.clone()),
            TemplatePart::Record => Self::Record(template.record_of(columns)),
        });
        Self::Seq(parts.collect())
    }

    /// The plan of one conversation.
    pub fn conversation(messages: Vec<(Role, String)>, generation: Generation) -> Self {
        let messages = messages.into_iter().map(|(role, text)| Self::message(role, Self::Text(text)));
        Self::Generate { input: Box::new(Self::Seq(messages.collect())), generation: Box::new(generation) }
    }

    /// The plan of one raw prompt.
    pub fn prompt(text: String, generation: Generation) -> Self {
        Self::Generate { input: Box::new(Self::Text(text)), generation: Box::new(generation) }
    }

    /// A message around a content.
    pub fn message(role: Role, content: Self) -> Self {
        Self::Message(role, Box::new(content))
    }

    /// The nodes directly below this one, in reading order.
    pub fn children(&self) -> &[Self] {
        match self {
            Self::Text(_) | Self::Field(_) | Self::Record(_) => &[],
            Self::Message(_, child) => std::slice::from_ref(child),
            Self::Generate { input, .. } => std::slice::from_ref(input),
            Self::Map { template, .. } => std::slice::from_ref(template),
            Self::Seq(children) | Self::Plus(children) | Self::Cross(children) => children,
        }
    }

    /// The same node over changed children.
    pub(crate) fn map_children(self, change: &mut dyn FnMut(Self) -> Self) -> Self {
        let mut all = |children: Vec<Self>| children.into_iter().map(&mut *change).collect();
        match self {
            leaf @ (Self::Text(_) | Self::Field(_) | Self::Record(_)) => leaf,
            Self::Seq(children) => Self::Seq(all(children)),
            Self::Plus(children) => Self::Plus(all(children)),
            Self::Cross(children) => Self::Cross(all(children)),
            Self::Message(role, child) => Self::Message(role, Box::new(change(*child))),
            Self::Generate { input, generation } => {
                Self::Generate { input: Box::new(change(*input)), generation }
            }
            Self::Map { template, rows } => Self::Map { template: Box::new(change(*template)), rows },
        }
    }

    /// Names of the columns whose cells stand below this node, in reading order, each once.
    pub fn fields(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.visit(&mut |plan| {
            let here = match plan {
                Self::Field(name) => std::slice::from_ref(name),
                Self::Record(columns) => columns,
                _ => &[],
            };
            for name in here {
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
        });
        names
    }

    /// Calls `see` for this node and all below it, in reading order.
    pub(crate) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Self)) {
        see(self);
        for child in self.children() {
            child.visit(see);
        }
    }
}
