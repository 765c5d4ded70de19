//! Named readings of the paper, where its print and its meaning part (docs/EQUATIONS.md).
//!
//! The first of each is what we serve with; the others are there to measure what following the print
//! costs. They hold for `relserve`, `relserve-pp` and `relserve-dp`, and for no other policy.

use serde::{Deserialize, Serialize};

/// How the paper is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PaperVariant {
    /// Eq. 17.
    pub delta: DeltaReading,
    /// Algorithm 1.
    pub decomposition: DecompositionReading,
    /// Eq. 8.
    pub priorities: PriorityReading,
}

/// The sign of Eq. 16 in Eq. 17.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeltaReading {
    /// What the waiting relQueries gain is taken off: the Delta of Figure 8.
    #[default]
    #[serde(rename = "figure-8")]
    Figure8,
    /// It is added. Delta is never negative, so a transition always decodes.
    AsPrinted,
}

/// The lines of Algorithm 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecompositionReading {
    /// With the errata that [`decompose`](crate::decompose) lists.
    #[default]
    Corrected,
    /// `accum` is never reset; a row decodes OL times; running rows are left out; closing a group adds its
    /// prefill batch even if empty, and the last group counts only if its prefill batch is not.
    AsPrinted,
}

/// When a priority is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PriorityReading {
    /// In every step, unless all rows wait (Eq. 12).
    #[default]
    Updated,
    /// When the relQuery comes or gets more rows, and never again: the ablation without the dynamic
    /// priority updater.
    Frozen,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_set_by_name_and_unknown_ones_refused() {
        let json = r#"{"delta":"as-printed","priorities":"frozen"}"#;
        let paper_variant: PaperVariant = serde_json::from_str(json).expect("two known readings");
        let expected = PaperVariant {
            delta: DeltaReading::AsPrinted,
            priorities: PriorityReading::Frozen,
            ..PaperVariant::default()
        };
        assert_eq!(paper_variant, expected);
        assert!(serde_json::to_string(&PaperVariant::default()).is_ok_and(|text| text.contains("figure-8")));
        assert!(serde_json::from_str::<PaperVariant>(r#"{"sign":"as-printed"}"#).is_err());
    }
}
