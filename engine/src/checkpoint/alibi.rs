//! ALiBi: attention scores that fall with the distance of query and key, in place of embedded positions.
//!
//! Press, Smith and Lewis 2022 (arXiv 2108.12409), section 3: a head's score of a query at position `i` and a
//! key at `j` is `q k / sqrt(head_dim) - slope (i - j)`. Slopes are a geometric series; where heads are no
//! power of two, they are every second one of the series for the next power, from the second on, then from
//! the first.

use crate::checkpoint::config::Alibi;

/// The slopes of `heads` heads, the steepest series reaching `2^-bias_max` (the paper, and Falcon: 8).
pub(super) fn slopes(heads: usize, bias_max: f64) -> Vec<f64> {
    let whole = heads.next_power_of_two();
    let slope = |number: usize| (-(number as f64) * bias_max / whole as f64).exp2();
    if whole == heads {
        return (1..=heads).map(slope).collect();
    }
    let (second, first) = ((2..=whole).step_by(2), (1..=whole).step_by(2));
    second.chain(first).take(heads).map(slope).collect()
}

/// Scores that fall by these slopes, as the paper has it.
pub(crate) fn exact(heads: usize, bias_max: f64) -> Alibi {
    let slopes = slopes(heads, bias_max).into_iter().map(|slope| slope as f32).collect();
    Alibi { slopes, scale: 1.0, is_rounded: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's own code (`get_slopes`), which halves to the power below instead of doubling to the one
    /// above.
    fn of_the_paper(heads: usize) -> Vec<f64> {
        if heads.is_power_of_two() {
            let start = 2f64.powf(-2f64.powf(-((heads as f64).log2() - 3.0)));
            return (1..=heads).map(|power| start.powi(power as i32)).collect();
        }
        let below = heads.next_power_of_two() / 2;
        let more = of_the_paper(2 * below);
        of_the_paper(below).into_iter().chain(more.into_iter().step_by(2)).take(heads).collect()
    }

    #[test]
    fn slopes_are_those_of_the_paper_for_any_number_of_heads() {
        for heads in 1..=72 {
            let (found, expected) = (slopes(heads, 8.0), of_the_paper(heads));
            assert_eq!(found.len(), heads);
            assert!(found.iter().zip(&expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-12), "{heads}");
        }
        assert_eq!(slopes(8, 8.0)[..3], [0.5, 0.25, 0.125]);
        assert_eq!(slopes(6, 16.0), [-4.0, -8.0, -12.0, -16.0, -2.0, -6.0].map(f64::exp2));
    }
}
