//! Rows of one relQuery in the order that shares most, and what each adds to those before it.
//!
//! Row order inside a relQuery is free (results go back by row number). In the order of their tokens,
//! rows with equal beginnings follow each other, and the longest beginning a row shares with *any*
//! earlier row is the one it shares with its predecessor.

use base::TokenId;

/// Sorts rows by their prompts; equal ones keep their order.
pub(crate) fn group<'a>(rows: &mut [u32], prompt: impl Fn(u32) -> &'a [TokenId]) {
    rows.sort_by(|a, b| prompt(*a).cmp(prompt(*b)));
}

/// Tokens of `row` that a predecessor in the same batch does not supply: whole blocks are shared, and the
/// last token is always computed.
pub(crate) fn novel(predecessor: Option<&[TokenId]>, row: &[TokenId], block_tokens: u32) -> u64 {
    let Some(predecessor) = predecessor else { return row.len() as u64 };
    let shared = predecessor.iter().zip(row).take_while(|(a, b)| a == b).count();
    let hittable = shared.min(row.len() - 1) as u64;
    row.len() as u64 - hittable / u64::from(block_tokens) * u64::from(block_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouped_rows_compute_each_shared_beginning_once() {
        let prompts: Vec<Vec<TokenId>> =
            [vec![1, 2, 9, 9], vec![1, 3, 7, 7], vec![1, 2, 9, 8], vec![1, 2, 9, 9]]
                .map(|ids| ids.into_iter().map(TokenId).collect())
                .into();
        let mut rows = [0, 1, 2, 3];
        group(&mut rows, |row| &prompts[row as usize]);
        assert_eq!(rows, [2, 0, 3, 1]);
        let mut before = None;
        let novel: Vec<u64> = rows
            .iter()
            .map(|row| {
                let row = prompts[*row as usize].as_slice();
                novel(before.replace(row), row, 1)
            })
            .collect();
        assert_eq!(novel, [4, 1, 1, 3]);
        assert_eq!(super::novel(Some(&prompts[0]), &prompts[2], 2), 2);
    }
}
