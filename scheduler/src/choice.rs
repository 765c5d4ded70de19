//! What a policy hands to the step that is planned: plain data.

use base::RelQueryId;

use crate::admit::Admitted;
use crate::decision::Reason;

/// A waiting relQuery whose rows are offered to a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) id: RelQueryId,
    /// Most tokens that one of its rows is worth; absent: any number.
    pub(crate) row_tokens_max: Option<u64>,
}

impl Offer {
    pub(crate) fn unlimited(id: RelQueryId) -> Self {
        Self { id, row_tokens_max: None }
    }
}

/// What a step does.
pub(crate) struct Choice {
    pub(crate) reason: Reason,
    /// Rows to prefill, new ones and half-prefilled ones.
    pub(crate) prefill: Vec<Admitted>,
    /// Whether all running rows decode.
    pub(crate) decodes: bool,
}
