//! Which lines of a bucket fit into what is left of their tenant's budget. Must not know what the budget is.

use serving::budgets::BudgetAmount;
use serving::price::TokenPrices;
use serving::submit;

use crate::services::batches::lines::ReadyLine;

/// The most that a line may take.
pub(super) fn most(line: &ReadyLine, prices: TokenPrices) -> BudgetAmount {
    let rows = line.rows.iter().map(|row| submit::most(row, prices));
    rows.fold(BudgetAmount::default(), BudgetAmount::plus)
}

/// The first items that fit together, and the others; a smaller one may pass a larger.
pub(super) fn split_within<T>(
    items: Vec<T>,
    most: impl Fn(&T) -> BudgetAmount,
    fits: impl Fn(BudgetAmount) -> bool,
) -> (Vec<T>, Vec<T>) {
    let mut taken = BudgetAmount::default();
    items.into_iter().partition(|item| {
        let with = taken.plus(most(item));
        let is_taken = fits(with);
        if is_taken {
            taken = with;
        }
        is_taken
    })
}

#[cfg(test)]
mod tests {
    use base::Money;

    use super::*;

    #[test]
    fn what_fits_is_taken_in_order_and_the_smaller_passes_the_larger() {
        let most = |tokens: &u64| BudgetAmount { tokens: *tokens, cost: Money(2 * tokens) };
        let split = |left: u64| split_within(vec![4, 9, 3, 3], most, |sum| sum.tokens <= left);
        assert_eq!(split(8), (vec![4, 3], vec![9, 3]));
        assert_eq!(split(19), (vec![4, 9, 3, 3], vec![]));
        assert_eq!(split(2), (vec![], vec![4, 9, 3, 3]));
        assert!(split(u64::MAX).1.is_empty());
        let within_cost = split_within(vec![4, 9, 3, 3], most, |sum| sum.cost <= Money(15));
        assert_eq!(within_cost, (vec![4, 3], vec![9, 3]));
    }
}
