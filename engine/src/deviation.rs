//! How far the keys of tokens that saw only their own section are from those of the same tokens seeing all that
//! stands before them: what CacheBlend (arXiv 2405.16444, section 4.3) chooses by which tokens to compute again.

use base::Sees;

use crate::compare::{CompareError, ComparedRow, Prompt, start};
use crate::parallel::ShardedModel;

/// The layer whose keys are compared. Those of the first follow from the token alone; how far a token is in this
/// one tells how far it is in the others (CacheBlend, section 4.3, insight 2).
const LAYER: usize = 1;

/// Keys of a prompt's tokens: per rank `[tokens, the rank's heads x head_dim]`, as they are before they are rotated.
#[derive(Clone, Debug)]
pub struct PromptKeys(Vec<Vec<f32>>);

impl PromptKeys {
    /// Computes a prompt as far as these keys, which takes a model about as long as one layer does.
    pub fn of(model: &ShardedModel, prompt: &Prompt) -> Result<Self, CompareError> {
        let layer = LAYER.min(model.config().layers - 1);
        let mut blocks = 0;
        let row = ComparedRow::new(prompt, &mut blocks);
        let mut ranks = start(model, blocks)?;
        Ok(Self(ranks.keys(&row.slots(0, 0), layer)?.ok_or(CompareError::OnGpu)?))
    }
}

/// Squared distances between a prompt's keys and those of the same prompt undivided: one per token of an
/// independent section, none of the others.
pub fn key_deviations(prompt: &Prompt, apart: &PromptKeys, undivided: &PromptKeys) -> Vec<Vec<f32>> {
    let tokens = |section: &base::Section| section.tokens.0 as usize;
    // Where each section's tokens are in the undivided prompt.
    let mut order: Vec<usize> = (0..prompt.sections.len()).collect();
    order.retain(|number| !prompt.sections[*number].is_placeholder());
    order.sort_by_key(|number| prompt.sections[*number].position);
    let mut place = vec![0; prompt.sections.len()];
    let mut end = 0;
    for number in order {
        place[number] = end;
        end += tokens(&prompt.sections[number]);
    }
    let (mut found, mut first) = (Vec::with_capacity(place.len()), 0);
    for (section, place) in prompt.sections.iter().zip(place) {
        let count = tokens(section);
        let is_compared = section.sees != Sees::Before && !section.is_placeholder();
        let range = if is_compared { 0..count } else { 0..0 };
        let of_token = |token: usize| -> f32 {
            let of_rank = |(apart, undivided): (&Vec<f32>, &Vec<f32>)| {
                let width = apart.len() / prompt.tokens.len();
                let one = &apart[(first + token) * width..][..width];
                let other = &undivided[(place + token) * width..][..width];
                one.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum::<f32>()
            };
            apart.0.iter().zip(&undivided.0).map(of_rank).sum()
        };
        found.push(range.map(of_token).collect());
        first += count;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{Section, TokenCount, TokenId};

    use super::*;
    use crate::checkpoint::config::Family;
    use crate::checkpoint::{Dtype, Synthetic};
    use crate::device::Cpu;
    use crate::settings::Keep;

    fn section(tokens: u64, position: u32, unit: Option<u32>) -> Section {
        let sees =
            unit.map_or(Sees::Before, |first| Sees::Unit { first, origin: position, is_placeholder: false });
        Section { tokens: TokenCount(tokens), position, sees }
    }

    #[test]
    fn keys_differ_where_a_section_does_not_see_what_stands_before_it() {
        let synthetic = Synthetic::tiny(Family::Llama, 5);
        let tokens: Vec<TokenId> = (0..50).map(|i| TokenId((i * 37 + i * i) % 200)).collect();
        let prompt = Prompt {
            tokens,
            sections: Arc::from([
                section(12, 0, Some(0)),
                section(9, 12, None),
                section(20, 21, Some(2)),
                section(9, 41, None),
            ]),
        };
        let mut of_ranks = Vec::new();
        for ranks in [1, 2] {
            let cpus: Vec<_> =
                (0..ranks).map(|_| Arc::new(Cpu::new(Some(1)).expect("threads start"))).collect();
            let keep = Keep { dtype: Some(Dtype::F32), ..Keep::default() };
            let model = ShardedModel::load(&synthetic.config, &synthetic.weights(), &cpus, keep);
            let model = model.expect("it is whole");
            let [apart, undivided] =
                [&prompt, &prompt.undivided()].map(|prompt| PromptKeys::of(&model, prompt).expect("it fits"));
            let found = key_deviations(&prompt, &apart, &undivided);
            assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [12, 0, 20, 0]);
            assert!(found[0].iter().all(|far| *far < 1e-8), "the first sees all there is: {found:?}");
            assert!(found[2].iter().all(|far| *far > 1e-8), "{found:?}");
            of_ranks.push(found);
        }
        let apart = of_ranks[0][2].iter().zip(&of_ranks[1][2]).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-4, "ranks have the heads between them: {of_ranks:?}");
    }
}
