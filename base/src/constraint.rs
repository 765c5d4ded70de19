//! What an output must look like: plain data. The engine compiles it to token masks; nothing here knows how.

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::TokenId;

/// A form that the whole output of a row has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// One of these texts, to the letter. Never empty, and no text is.
    Choice(Vec<String>),
    /// A decimal integer of this range, both ends included.
    Integer {
        /// Least.
        low: i64,
        /// Greatest; not below `low`.
        high: i64,
    },
    /// Text that a regular expression matches from its first to its last character.
    Regex(String),
    /// JSON that fits this JSON Schema, itself JSON text.
    JsonSchema(String),
    /// Text in which a tag begins JSON.
    StructuralTag(Box<StructuralTag>),
    /// Text in which JSON stands between marks of the caller's.
    TriggeredTags(Box<TriggeredTags>),
    /// Text that a grammar gives, in the notation of Lark.
    Grammar(String),
    /// Text that a grammar gives, in EBNF as xgrammar and llama.cpp (GBNF) read it: `root ::= ..`.
    Ebnf(String),
    /// A stretch of a text, from the beginning of a word to the end of one, to the letter.
    Excerpt {
        /// What it is copied from.
        of: ExcerptSource,
        /// What may be answered instead, where the text has nothing to copy.
        otherwise: Option<String>,
    },
    /// Items, one behind the other, no two of them alike.
    Items(Items),
    /// What a row's own text says, in the form that is asked for: a choice of its readings, which are listed for each
    /// row.
    Reading {
        /// Its text is the cell in the column of this name: whoever makes rows lists the readings. No executor can
        /// keep to it as it is.
        field: String,
        /// What is read.
        reading: TextReading,
        /// What holds where a text is not understood.
        otherwise: Option<Box<Constraint>>,
    },
}

/// Text in which `begin`, wherever it is written, is followed by JSON of a schema and `end`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StructuralTag {
    /// Not empty.
    pub begin: String,
    /// A JSON Schema, itself JSON text.
    pub schema: String,
    /// Not empty.
    pub end: String,
    /// Whether it may be written again, behind its end.
    pub is_repeated: bool,
    /// A JSON Schema of what may be written without the tag; none: any text, before, between and behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
}

/// Text in which a trigger, wherever it is written, begins one of these tags; any text before, between and behind them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TriggeredTags {
    /// Not empty.
    pub trigger: String,
    /// Never empty.
    pub tags: Vec<MarkedJson>,
}

/// JSON between two marks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MarkedJson {
    /// Begins with the trigger.
    pub begin: String,
    /// A JSON Schema, itself JSON text.
    pub schema: String,
    /// Not empty.
    pub end: String,
}

/// What is read in a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextReading {
    /// Its value, in the form that these words or this pattern name.
    Formatted { target: String },
    /// Its stretches that are what these words name.
    Stretches { what: String },
}

/// What an excerpt is copied from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExcerptSource {
    /// The row's cell in the column of this name: whoever makes rows puts its text here. No executor can keep
    /// to it as it is.
    Field(String),
    Text(String),
}

/// Items of an answer, with a separator between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Items {
    /// What an item may be, each once; without, any text of one line in which the separator's first character
    /// does not stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<Vec<String>>,
    /// What stands between two items. Not empty.
    pub separator: String,
    /// Fewest; at least 1.
    pub count_min: u32,
    /// Most; not below `count_min`.
    pub count_max: u32,
    /// Most characters of an item that is any text.
    pub chars_max: u32,
}

impl Constraint {
    /// The constraint of one row: what names a column has that cell's text.
    pub fn of_row(&self, text: impl FnOnce(&str) -> Option<String>) -> Option<Self> {
        let Self::Excerpt { of: ExcerptSource::Field(name), otherwise } = self else { return None };
        let of = ExcerptSource::Text(text(name)?);
        Some(Self::Excerpt { of, otherwise: otherwise.clone() })
    }

    /// The column whose cell it needs for each row.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Excerpt { of: ExcerptSource::Field(field), .. } | Self::Reading { field, .. } => {
                Some(field)
            }
            _ => None,
        }
    }

    /// What holds of it where rows have no single text of their own.
    pub fn without_field(self) -> Option<Self> {
        match self {
            Self::Reading { otherwise, .. } => otherwise.and_then(|otherwise| otherwise.without_field()),
            form => form.field().is_none().then_some(form),
        }
    }

    /// How many answers it lists, where it lists all that there can be.
    pub fn listed(&self) -> Option<u64> {
        match self {
            Self::Choice(texts) => Some(texts.len() as u64),
            Self::Integer { low, high } => high.abs_diff(*low).checked_add(1),
            Self::Regex(_)
            | Self::JsonSchema(_)
            | Self::StructuralTag(_)
            | Self::TriggeredTags(_)
            | Self::Grammar(_)
            | Self::Ebnf(_)
            | Self::Excerpt { .. }
            | Self::Items(_)
            | Self::Reading { .. } => None,
        }
    }
}

/// Which of the answers that a constraint lists is drawn, where that is not the model's choice alone.
/// Without effect on constraints that list none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerScoring {
    /// Contextual calibration (Zhao et al. 2021, arXiv 2102.09690, with a diagonal `W` and no bias): how likely
    /// the model finds an answer is divided by how likely it finds it without any content. One probability for
    /// each answer in the constraint's order, each above 0.
    Calibrated(Vec<f32>),
    /// The answer of this number is written, to learn how likely it was.
    Only(u32),
}

/// A constraint that cannot be kept to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConstraintError(pub String);

/// What a constraint was compiled to: opaque here, known to who compiled it. Rows carry it, so that it lives
/// as long as they do and no step compiles.
#[derive(Clone, Default)]
pub struct Compiled {
    form: Option<Arc<dyn Any + Send + Sync>>,
    opening: Arc<[TokenId]>,
}

impl Compiled {
    /// A compiled form.
    pub fn new(form: impl Any + Send + Sync) -> Self {
        Self { form: Some(Arc::new(form)), opening: Arc::default() }
    }

    /// The same form, with which every output begins with these tokens.
    pub fn with_opening(self, opening: &[TokenId]) -> Self {
        Self { opening: opening.into(), ..self }
    }

    /// Tokens that every output of the form begins with, whatever is drawn behind them; none where the first is
    /// to be decided, or nobody knows.
    pub fn opening(&self) -> &[TokenId] {
        &self.opening
    }

    /// The form, where it is there and of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.form.as_deref()?.downcast_ref()
    }

    /// Whether anybody else holds it.
    pub fn is_shared(&self) -> bool {
        self.form.as_ref().is_some_and(|form| Arc::strong_count(form) > 1)
    }
}

/// Says nothing of a generation that its constraint does not say.
impl PartialEq for Compiled {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(if self.form.is_some() { "Compiled" } else { "not compiled" })
    }
}

/// Who can compile constraints on the outputs of a model, ahead of any row.
pub trait ConstraintCompiler: Send + Sync {
    /// Compiles the constraint, or says why that cannot be done. Bounded in time and size, but not quick:
    /// call it off the loop.
    fn compile(&self, constraint: &Constraint) -> Result<Compiled, ConstraintError>;
}
