//! Logits to a token: greedy, or drawn by temperature, top-k and top-p with a counter-based generator.

use base::{Generation, RowError, TokenId};

use crate::decoder::SampleQuery;
use crate::device::Cpu;
use crate::device::cpu::{KEPT_MAX, TopK};

/// Which random number a draw takes: that of output position `index` of the row seeded `seed`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawKey {
    pub(crate) seed: u64,
    pub(crate) index: u32,
}

impl DrawKey {
    /// The number, in [0, 1): SplitMix64 (Steele et al., OOPSLA 2014) as a hash.
    pub(crate) fn uniform(self) -> f64 {
        let Self { seed, index } = self;
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let mix = |z: u64| {
            let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        let bits =
            mix(mix(seed.wrapping_add(GOLDEN)).wrapping_add(GOLDEN.wrapping_mul(u64::from(index) + 1)));
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The token that a draw from `logits` gives.
///
/// `logits` are used up; those from `ids_end` on are padding, and never drawn. Which token is drawn depends
/// on `(logits, key)` alone, so a row that is recomputed draws the same tokens.
pub(crate) fn sample(
    cpu: &Cpu,
    logits: &mut [f32],
    ids_end: usize,
    generation: &Generation,
    key: DrawKey,
) -> Result<TokenId, RowError> {
    if let Some(wanted) = top_k_wanted(generation) {
        return sample_top_k(cpu, &cpu.top_k_of(logits, wanted, ids_end), generation, key);
    }
    if !all_finite(logits) {
        return Err(RowError::NotANumber);
    }
    let ids_end = ids_end.min(logits.len());
    let logits = &mut logits[..ids_end];
    let (best, max) = argmax(logits);
    let token = draw(cpu, logits, max, generation, key.uniform());
    Ok(TokenId(token.unwrap_or(best) as u32))
}

/// How many of a row's highest logits [`sample_top_k`] needs; `None` where it may draw from all or many.
pub(crate) fn top_k_wanted(generation: &Generation) -> Option<usize> {
    if generation.temperature <= 0.0 {
        return Some(1);
    }
    generation.top_k.map(|k| (k as usize).max(1)).filter(|k| *k <= KEPT_MAX)
}

/// [`sample`] from a row's [`top_k_wanted`] highest logits: the same token.
pub(crate) fn sample_top_k(
    cpu: &Cpu,
    top_k: &TopK,
    generation: &Generation,
    key: DrawKey,
) -> Result<TokenId, RowError> {
    let kept = top_k.kept().ok_or(RowError::NotANumber)?;
    let (max, best) = kept.first().copied().unwrap_or_default();
    if kept.len() <= 1 || generation.temperature <= 0.0 {
        return Ok(TokenId(best));
    }
    // In the order of their ids, so that of equal weights the lowest id comes first.
    let mut kept = kept.to_vec();
    kept.sort_unstable_by_key(|(_, id)| *id);
    let mut logits: Vec<f32> = kept.iter().map(|(logit, _)| *logit).collect();
    let token = draw(cpu, &mut logits, max, generation, key.uniform());
    Ok(TokenId(token.map_or(best, |token| kept[token].1)))
}

/// Most of the highest logits that a GPU is asked for.
const TOP_K_ON_GPU_MAX: usize = 1024;

/// So many hold the nucleus of all but the flattest distributions.
const NUCLEUS: usize = 256;

/// How a token is drawn from a row of logits that stays on its device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DrawFrom {
    /// From its highest logits: [`sample_top_k`].
    TopK,
    /// From those too, if top-p keeps no others: [`sample_nucleus`].
    Nucleus,
    /// From all its tokens by their weights: the device finds the one that [`DrawKey::uniform`] falls on.
    All,
    /// Only from logits.
    Logits,
}

/// How a token is drawn where logits stay on a device, and what must be known of them.
pub(crate) fn sample_query(generation: &Generation) -> (DrawFrom, SampleQuery) {
    let inverse_temperature = 1.0 / generation.temperature;
    match (generation.temperature <= 0.0, generation.top_k, generation.top_p) {
        (true, ..) => (DrawFrom::TopK, SampleQuery { top_k: 1, ..SampleQuery::default() }),
        (_, Some(k), _) if k as usize <= TOP_K_ON_GPU_MAX => {
            (DrawFrom::TopK, SampleQuery { top_k: (k as usize).max(1), ..SampleQuery::default() })
        }
        (_, Some(_), _) => (DrawFrom::Logits, SampleQuery::default()),
        (_, None, 1.0) => (DrawFrom::All, SampleQuery { inverse_temperature, ..SampleQuery::default() }),
        (_, None, _) => (DrawFrom::Nucleus, SampleQuery { top_k: NUCLEUS, inverse_temperature, mask: None }),
    }
}

/// [`sample`] with top-p alone, from a row's highest logits and the sum of all weights, of which the
/// highest's is 1; `None` where the nucleus holds others as well.
pub(crate) fn sample_nucleus(
    cpu: &Cpu,
    (top_k, sum): (&TopK, f64),
    generation: &Generation,
    key: DrawKey,
) -> Result<Option<TokenId>, RowError> {
    let kept = top_k.kept().ok_or(RowError::NotANumber)?;
    let max = kept.first().map_or(0.0, |(logit, _)| *logit);
    let mut weights: Vec<f32> = kept.iter().map(|(logit, _)| *logit).collect();
    cpu.exp(&mut weights, max, 1.0 / generation.temperature);
    let mut tokens: Vec<(f32, u32)> = weights.into_iter().zip(kept.iter().map(|(_, token)| *token)).collect();
    // Logits apart may have equal weights.
    tokens.sort_unstable_by(|(x, i), (y, j)| y.total_cmp(x).then(i.cmp(j)));
    let mut reached = 0.0;
    let last = tokens.iter().position(|(weight, _)| {
        reached += f64::from(*weight);
        reached >= f64::from(generation.top_p) * sum
    });
    let Some(last) = last else { return Ok(None) };
    let nucleus = tokens[..=last].iter().map(|(weight, token)| (*token as usize, *weight));
    Ok(pick_by_weight(nucleus, key.uniform()).map(|token| TokenId(token as u32)))
}

/// The number of the logit that `draw` falls on, of which `max` is the highest; they become weights, the
/// largest 1. Min-p comes before top-k and top-p.
fn draw(cpu: &Cpu, logits: &mut [f32], max: f32, generation: &Generation, draw: f64) -> Option<usize> {
    cpu.exp(logits, max, 1.0 / generation.temperature);
    if let Some(adjustments) = &generation.adjustments {
        // The likeliest has weight 1.
        let is_out = |weight: &&mut f32| **weight < adjustments.min_p;
        logits.iter_mut().filter(is_out).for_each(|weight| *weight = 0.0);
    }
    match (generation.top_k, generation.top_p) {
        (None, 1.0) => pick_by_weight(logits.iter().copied().enumerate(), draw),
        (top_k, top_p) => {
            let kept = nucleus(logits, top_k, top_p);
            pick_by_weight(kept.iter().map(|token| (*token, logits[*token])), draw)
        }
    }
}

/// Makes sure that only allowed tokens can be drawn. What is not a number stays so: the row shall fail by it.
pub(crate) fn forbid(logits: &mut [f32], allows: impl Fn(TokenId) -> bool) {
    for (token, logit) in (0..).zip(logits) {
        if logit.is_finite() && !allows(TokenId(token)) {
            *logit = f32::MIN;
        }
    }
}

/// Numbers that are looked at together: a vocabulary is long, and a compiler makes vectors of this.
const TOGETHER: usize = 64;

/// Whether all are numbers, none of them infinite.
pub(crate) fn all_finite(logits: &[f32]) -> bool {
    let (chunks, rest) = logits.as_chunks::<TOGETHER>();
    let odd = |logits: &[f32]| logits.iter().fold(false, |odd, logit| odd | !logit.is_finite());
    !chunks.iter().any(|chunk| odd(chunk)) && !odd(rest)
}

/// The highest logit's token, the lowest of equals, and the logit. All are numbers.
fn argmax(logits: &[f32]) -> (usize, f32) {
    let (chunks, rest) = logits.as_chunks::<TOGETHER>();
    let mut highest = [f32::NEG_INFINITY; TOGETHER];
    for chunk in chunks {
        for (high, logit) in highest.iter_mut().zip(chunk) {
            *high = if *logit > *high { *logit } else { *high };
        }
    }
    let max = highest.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    let has = |chunk: &[f32; TOGETHER]| chunk.iter().fold(false, |has, logit| has | (*logit == max));
    let from = chunks.iter().position(has).unwrap_or(chunks.len()) * TOGETHER;
    let best = logits[from..].iter().position(|logit| *logit == max);
    (from + best.unwrap_or_default(), max)
}

/// Most likely tokens first (the lowest of equals first): the `top_k` first of all, and of them the fewest
/// whose share of their sum reaches `top_p`.
fn nucleus(weights: &[f32], top_k: Option<u32>, top_p: f32) -> Vec<usize> {
    let k = top_k.map_or(weights.len(), |k| k as usize).clamp(1, weights.len());
    let by_weight = |a: &usize, b: &usize| weights[*b].total_cmp(&weights[*a]).then(a.cmp(b));
    let mut tokens: Vec<usize> = if k == weights.len() {
        // Tokens below this weight sum to less than the share that top_p leaves out.
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let floor = ((1.0 - f64::from(top_p)) * total / weights.len() as f64) as f32;
        (0..weights.len()).filter(|token| weights[*token] >= floor).collect()
    } else {
        let mut tokens: Vec<usize> = (0..weights.len()).collect();
        tokens.select_nth_unstable_by(k - 1, by_weight);
        tokens.truncate(k);
        tokens
    };
    tokens.sort_unstable_by(by_weight);
    let total: f64 = match top_k {
        Some(_) if k < weights.len() => tokens.iter().map(|token| f64::from(weights[*token])).sum(),
        _ => weights.iter().map(|weight| f64::from(*weight)).sum(),
    };
    let mut sum = 0.0;
    let kept = tokens.iter().position(|token| {
        sum += f64::from(weights[*token]);
        sum >= f64::from(top_p) * total
    });
    if let Some(last) = kept {
        tokens.truncate(last + 1);
    }
    tokens
}

/// The token at which the running sum of weights passes `draw` of their total.
fn pick_by_weight(weights: impl Iterator<Item = (usize, f32)> + Clone, draw: f64) -> Option<usize> {
    let total: f64 = weights.clone().map(|(_, weight)| f64::from(weight)).sum();
    let mut sum = 0.0;
    let mut last = None;
    for (token, weight) in weights {
        sum += f64::from(weight);
        if weight > 0.0 {
            last = Some(token);
        }
        if sum > draw * total {
            return last;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u64, index: u32) -> DrawKey {
        DrawKey { seed, index }
    }

    fn cpu() -> Cpu {
        Cpu::new(Some(1)).expect("a thread starts")
    }

    /// How often each token is drawn over `draws` output positions.
    fn counts(logits: &[f32], generation: &Generation, draws: u32) -> Vec<u32> {
        let cpu = cpu();
        let ids_end = logits.len();
        let mut counts = vec![0; ids_end];
        for index in 0..draws {
            let token = sample(&cpu, &mut logits.to_vec(), ids_end, generation, key(11, index))
                .expect("the logits are finite");
            counts[token.0 as usize] += 1;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        let greedy = Generation::default();
        let token = sample(&cpu(), &mut [0.5, 2.0, 2.0, -1.0], 4, &greedy, key(1, 0));
        assert_eq!(token, Ok(TokenId(1)));
    }

    #[test]
    fn the_highest_is_found_wherever_it_stands() {
        for len in [1, TOGETHER - 1, TOGETHER, 3 * TOGETHER + 5] {
            for best in 0..len {
                let mut logits: Vec<f32> = (0..len).map(|token| -1.0 - (token % 7) as f32).collect();
                logits[best] = -0.5;
                assert_eq!(argmax(&logits), (best, -0.5), "of {len}");
                logits[len - 1] = -0.5;
                assert_eq!(argmax(&logits).0, best, "the lowest of equals");
                assert!(all_finite(&logits));
                logits[best] = f32::NAN;
                assert!(!all_finite(&logits));
            }
        }
        assert_eq!(argmax(&[]), (0, f32::NEG_INFINITY));
    }

    #[test]
    fn logits_that_are_not_numbers_fail_the_row() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for ids_end in [1, 2] {
                let token = sample(&cpu(), &mut [0.5, bad], ids_end, &Generation::default(), key(1, 0));
                assert_eq!(token, Err(RowError::NotANumber), "in the padding too: the row's numbers are off");
            }
        }
    }

    #[test]
    fn padding_is_never_drawn() {
        let logits = [0.0, 0.5, 9.0, 8.0];
        let draw = |generation: &Generation, index| {
            sample(&cpu(), &mut logits.clone(), 2, generation, key(3, index)).expect("the logits are finite")
        };
        assert_eq!(draw(&Generation::default(), 0), TokenId(1));
        let warm = Generation { temperature: 1.5, ..Generation::default() };
        let cut = Generation { top_p: 0.99, top_k: Some(4), ..warm.clone() };
        for generation in [warm, cut] {
            let mut drawn: Vec<u32> = (0..50).map(|index| draw(&generation, index).0).collect();
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn, [0, 1]);
        }
    }

    #[test]
    fn draws_follow_the_softmax_at_the_temperature() {
        let logits = [1.0f32, 0.0, 2.0, -30.0];
        let warm = Generation { temperature: 2.0, ..Generation::default() };
        let found = counts(&logits, &warm, 20_000);
        let total: f64 = logits.iter().map(|l| f64::from(*l / 2.0).exp()).sum();
        for (count, logit) in found.iter().zip(logits) {
            let expected = f64::from(logit / 2.0).exp() / total;
            assert!((f64::from(*count) / 20_000.0 - expected).abs() < 0.012, "{found:?}");
        }
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let logits = [0.0f32, 1.0, 3.0, 2.9, -1.0];
        let top_k = Generation { temperature: 1.0, top_k: Some(2), ..Generation::default() };
        let drawn = |generation: &Generation| -> Vec<bool> {
            counts(&logits, generation, 2_000).iter().map(|count| *count > 0).collect()
        };
        assert_eq!(drawn(&top_k), [false, false, true, true, false]);
        let top_p = Generation { temperature: 1.0, top_p: 0.95, ..Generation::default() };
        assert_eq!(drawn(&top_p), [false, true, true, true, false]);
        let both = Generation { temperature: 1.0, top_p: 0.5, top_k: Some(2), ..Generation::default() };
        assert_eq!(drawn(&both), [false, false, true, false, false]);
        let all = Generation { temperature: 1.0, top_k: Some(9), top_p: 0.999_999, ..Generation::default() };
        assert_eq!(drawn(&all), [true; 5]);
    }

    #[test]
    fn min_p_cuts_what_is_less_than_its_share_of_the_likeliest_at_the_temperature() {
        // At temperature 2 their weights are 0.22, 0.37, 1, 0.95 and 0.14.
        let logits = [0.0f32, 1.0, 3.0, 2.9, -1.0];
        let drawn = |min_p: f32, generation: Generation| -> Vec<bool> {
            let adjustments = base::LogitAdjustments { min_p, ..base::LogitAdjustments::default() };
            let generation =
                Generation { temperature: 2.0, adjustments: Some(Box::new(adjustments)), ..generation };
            counts(&logits, &generation, 2_000).iter().map(|count| *count > 0).collect()
        };
        assert_eq!(drawn(0.0, Generation::default()), [true; 5]);
        assert_eq!(drawn(0.2, Generation::default()), [true, true, true, true, false]);
        assert_eq!(drawn(0.3, Generation::default()), [false, true, true, true, false]);
        assert_eq!(drawn(1.0, Generation::default()), [false, false, true, false, false]);
        let top_k = Generation { top_k: Some(2), ..Generation::default() };
        assert_eq!(drawn(0.3, top_k), [false, false, true, true, false]);
        let top_p = Generation { top_p: 0.8, ..Generation::default() };
        assert_eq!(drawn(0.3, top_p), [false, false, true, true, false], "of what min-p leaves");
    }

    #[test]
    fn a_nucleus_is_drawn_from_the_highest_and_the_sum_as_from_all_logits() {
        let cpu = cpu();
        let logits: Vec<f32> = (0..600).map(|token| 6.0 * ((token * token) as f32 * 0.37).sin()).collect();
        let max = logits.iter().copied().fold(f32::MIN, f32::max);
        let mut drawn = [0, 0];
        for (temperature, top_p) in [(0.7, 0.9), (1.3, 0.5), (0.2, 0.999), (5.0, 0.99)] {
            let generation = Generation { temperature, top_p, ..Generation::default() };
            let (from, query) = sample_query(&generation);
            assert_eq!((from, query.top_k), (DrawFrom::Nucleus, NUCLEUS));
            let top_k = cpu.top_k_of(&logits, query.top_k, logits.len());
            let sum =
                logits.iter().map(|logit| f64::from((logit - max) * query.inverse_temperature).exp()).sum();
            for index in 0..100 {
                let expected = sample(&cpu, &mut logits.clone(), logits.len(), &generation, key(7, index))
                    .expect("sound");
                match sample_nucleus(&cpu, (&top_k, sum), &generation, key(7, index)).expect("sound") {
                    Some(token) => {
                        assert_eq!(token, expected, "{temperature} {top_p}");
                        drawn[0] += 1;
                    }
                    None => drawn[1] += 1,
                }
            }
        }
        assert_eq!(drawn, [300, 100], "the flattest has a nucleus of more");
    }

    #[test]
    fn a_draw_depends_on_seed_and_output_position_alone() {
        assert_eq!(key(5, 3).uniform().to_bits(), key(5, 3).uniform().to_bits());
        let mut seen: Vec<u64> = (0..40).map(|i| key(i / 8, (i % 8) as u32).uniform().to_bits()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 40);
        let mean = (0..4000).map(|i| key(9, i).uniform()).sum::<f64>() / 4000.0;
        assert!((mean - 0.5).abs() < 0.02);
    }
}
