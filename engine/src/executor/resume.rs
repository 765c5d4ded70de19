//! Rows that another executor began: their text and their constraints, up to where it left off.

use base::{SampleSpec, Slot};

use super::{LocalExecutor, Output};
use crate::stop::StopText;

impl LocalExecutor {
    /// Brings rows that it has not seen to where their output stands. Their text up to there is out already.
    pub(super) fn resume(&mut self, slots: &[Slot]) {
        for slot in slots {
            let Some(spec) = slot.sample.as_ref().filter(|spec| !spec.already_generated.is_empty()) else {
                continue;
            };
            if !self.outputs.contains_key(&slot.request) {
                let output = self.resumed(spec);
                self.outputs.insert(slot.request, output);
            }
        }
    }

    /// Where a row stands that has said what it has. One that its constraint cannot have let through is without its
    /// constraint then, and fails alone when it samples.
    fn resumed(&self, spec: &SampleSpec) -> Output {
        let (mut decode, mut stop) = (self.text.start(), StopText::default());
        let mut follow = self.constraints.start(&spec.generation).ok().flatten();
        for token in &spec.already_generated {
            stop.push(&self.text.push(&mut decode, *token), &spec.generation.stop);
            follow = follow.and_then(|mut follow| follow.take(*token).is_ok().then_some(follow));
        }
        Output { decode, stop, follow }
    }
}
