//! Whether a row joins the batch while relQueries before its own run (O8 of docs/MARGINAL-WORK.md).
//!
//! Pure functions over counts; `step` counts and asks. Everything is machine time summed over the relQueries that
//! lose or gain it, as in RelServe's Eq. 15-17, and follows from the cost model and from what is here.

use crate::cost::CostModel;

/// What relQueries have left, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// How many relQueries.
    pub(crate) relqueries: u64,
    /// Their rows.
    pub(crate) rows: u64,
    /// Output tokens expected of all these rows.
    pub(crate) output: u64,
    /// Steps until the last of them can end.
    pub(crate) steps: u64,
}

impl Left {
    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            relqueries: self.relqueries + other.relqueries,
            rows: self.rows + other.rows,
            output: self.output + other.output,
            steps: self.steps.max(other.steps),
        }
    }
}

/// A waiting relQuery whose rows may join.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining {
    /// Its waiting rows, as many as fit beside each other: they share each of its decode steps.
    pub(crate) rows: u64,
    /// Rows that would share its steps if it waited.
    pub(crate) beside: u64,
    /// Output tokens expected of a row.
    pub(crate) output: u64,
    /// Steps until the last of its rows can end, once they run.
    pub(crate) steps: u64,
    /// RelQueries that come after it: that wait, or are to be expected while the machine is busy.
    pub(crate) behind: u64,
    /// Thousandths of a prompt token that would ride free if it waited.
    pub(crate) hidden_permille: u64,
}

/// What joining gains, in ns, per row: to its relQuery and to each that comes after it.
///
/// ```text
/// own    = [ b_d * K + a_d * (sum over rows ahead of (k_r - k)) ] / m
/// others = behind * b_d * min(K', K) / m
/// ```
///
/// `K` steps that those ahead still take, `K'` those of the joining relQuery, `k` output tokens of its rows, `m` rows of it.
/// If it waits, it waits for all steps of those ahead; if it joins, it rides in them, and is done before
/// them if it is shorter. Those behind it are spared the steps that both share.
fn gained(cost: &CostModel, ahead: &Left, joining: &Joining) -> u128 {
    let (base, sequence) = (u128::from(cost.decode_base.0), u128::from(cost.decode_per_sequence.0));
    let beyond = ahead.output.saturating_sub(ahead.rows * joining.output);
    let own = base * u128::from(ahead.steps) + sequence * u128::from(beyond);
    let others = base * u128::from(ahead.steps.min(joining.steps)) * u128::from(joining.behind);
    own / u128::from(joining.rows.max(1)) + others / u128::from(joining.beside.max(joining.rows).max(1))
}

/// Most prompt tokens for which a row that joins is worth them:
///
/// ```text
/// gained  >  ahead * (a_p * u + a_d * min(k, K)) + (1 + behind) * a_p * u * hidden
/// ```
///
/// `ahead` relQueries are held up by its prompt and, while they run, by its sequence; all after them by that
/// part of the prompt that a later step would have hidden.
pub(crate) fn tokens_max(cost: &CostModel, ahead: &Left, joining: &Joining, worth_permille: u64) -> u64 {
    let relqueries = u128::from(ahead.relqueries);
    let sequences = u128::from(cost.decode_per_sequence.0) * u128::from(joining.output.min(ahead.steps));
    let token = u128::from(cost.prefill_per_token.0.max(1));
    let hidden = token * u128::from(1 + joining.behind) * u128::from(joining.hidden_permille) / 1_000;
    let gained = gained(cost, ahead, joining) * u128::from(worth_permille) / 1_000;
    let left = gained.saturating_sub(relqueries * sequences);
    u64::try_from(left / (relqueries * token + hidden).max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    /// The reference machine, of which nothing hides: 0.1 ms a token, 0.45 ms a sequence, 25 ms a step.
    fn worth(ahead: Left, joining: Joining) -> u64 {
        tokens_max(&CostModel::default().hiding(0), &ahead, &joining, 1_000)
    }

    const ONE: Joining = Joining { rows: 50, beside: 0, output: 5, steps: 5, behind: 0, hidden_permille: 0 };

    #[test]
    fn a_short_relquery_joins_a_long_tail_of_few_rows() {
        // 5 rows ahead of 100 tokens each: (25 * 100 + 0.45 * 5 * 95) / 50 = 54.275 ms, less 0.45 * 5 = 2.25.
        let tail = Left { relqueries: 1, rows: 5, output: 500, steps: 100 };
        assert_eq!(worth(tail, ONE), 520);
    }

    #[test]
    fn it_waits_for_what_is_nearly_done_unless_others_wait_too() {
        // (25 * 5 + 0) / 50 = 2.5 ms, less 2.25.
        let nearly = Left { relqueries: 1, rows: 50, output: 250, steps: 5 };
        assert_eq!(worth(nearly, ONE), 2);
        assert_eq!(worth(nearly, Joining { behind: 9, ..ONE }), 227, "ten times 2.5 ms, less 2.25");
    }

    #[test]
    fn more_of_those_ahead_lose_more_and_a_small_base_gains_less() {
        let tail = Left { relqueries: 1, rows: 5, output: 500, steps: 100 };
        assert_eq!(worth(Left { relqueries: 4, ..tail }, ONE), 113);
        let small = CostModel { decode_base: Nanos(1_000_000), ..CostModel::default().hiding(0) };
        assert_eq!(tokens_max(&small, &tail, &ONE, 1_000), 40);
    }

    #[test]
    fn what_would_ride_free_later_is_dearer_now_and_a_lower_class_gains_less() {
        let tail = Left { relqueries: 1, rows: 5, output: 500, steps: 100 };
        assert_eq!(worth(tail, Joining { hidden_permille: 1_000, ..ONE }), 260, "lost to itself too");
        let cost = CostModel::default().hiding(0);
        assert_eq!(tokens_max(&cost, &tail, &ONE, 125), 45, "54.275 / 8 less 2.25 ms");
    }
}
