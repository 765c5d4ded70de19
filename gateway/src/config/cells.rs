//! How cell functions are put to a model.

use serde::{Deserialize, Serialize};

/// How cell functions are put to a model. A request may say otherwise, in `guidance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CellsConfig {
    /// Whether a function's examples stand before each call, the same for all rows of a column; of models with
    /// a chat template.
    pub examples: bool,
    /// Whether answers are held to the form that their function has: one of the labels, some of the tags, a
    /// stretch of the text, so many lines.
    pub constraints: bool,
    /// Whether labels are chosen by how much likelier a text makes them than no text does
    /// (contextual calibration); of models that the local engine runs.
    pub calibration: bool,
}

impl Default for CellsConfig {
    fn default() -> Self {
        Self { examples: true, constraints: true, calibration: true }
    }
}
