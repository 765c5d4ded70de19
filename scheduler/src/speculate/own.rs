//! What followed a row's last tokens before, in its own output or input: extracted cells are copies, and
//! lists repeat their form.

use base::TokenId;

use super::Spoken;

/// Most tokens that are looked at, the latest ones of output and input each: a row's cells come behind its
/// template. A look takes about a nanosecond a token, and every row may look in every step.
const LOOKED_AT_MAX: usize = 1_024;

/// At most `most` tokens that followed the last three of the row's output, or else the last two, where they
/// stood last before. What runs over the end of the text begins again, as text that repeats itself does.
pub(super) fn repeated(row: Spoken<'_>, most: usize) -> Vec<TokenId> {
    if most == 0 {
        return Vec::new();
    }
    find(row).map_or_else(Vec::new, |behind| behind.iter().copied().cycle().take(most).collect())
}

/// What stands behind the latest place where the output's last three tokens, or else its last two, stood
/// before.
fn find(row: Spoken<'_>) -> Option<&[TokenId]> {
    let [earlier @ .., second, last] = row.output else { return None };
    let mut by_two = None;
    for text in [row.output, row.input] {
        let text = &text[text.len().saturating_sub(LOOKED_AT_MAX)..];
        // Nothing follows the last token of a text.
        for at in (1..text.len().saturating_sub(1)).rev() {
            if text[at] != *last || text[at - 1] != *second {
                continue;
            }
            let behind = &text[at + 1..];
            if at > 1 && earlier.last() == Some(&text[at - 2]) {
                return Some(behind);
            }
            by_two.get_or_insert(behind);
        }
    }
    by_two
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &[u32], output: &[u32], most: usize, expected: &[u32]) {
        let ids = |ids: &[u32]| ids.iter().map(|id| TokenId(*id)).collect::<Vec<_>>();
        let (input, output) = (ids(input), ids(output));
        let row = Spoken { input: &input, output: &output };
        assert_eq!(repeated(row, most), ids(expected), "{input:?} {output:?}");
    }

    #[test]
    fn a_copy_goes_on_where_its_last_tokens_stand_in_the_input() {
        check(&[1, 2, 3, 4, 5, 6], &[9, 2, 3], 2, &[4, 5]);
        check(&[1, 2, 3, 4, 5, 6], &[9, 2], 2, &[]);
        check(&[1, 2, 3, 4, 5, 6], &[2], 2, &[]);
        check(&[1, 2, 3, 4], &[], 2, &[]);
        check(&[1, 2, 3, 4], &[3, 4], 2, &[]);
        check(&[1, 2, 3, 4], &[2, 3], 0, &[]);
    }

    #[test]
    fn three_tokens_that_agree_are_better_than_two_and_later_places_than_earlier_ones() {
        check(&[1, 2, 3, 7, 8, 2, 3, 9], &[1, 2, 3], 1, &[7]);
        check(&[1, 2, 3, 7, 8, 2, 3, 9], &[5, 2, 3], 1, &[9]);
        check(&[1, 2, 3, 7], &[1, 2, 3, 6, 1, 2, 3], 1, &[6]);
        check(&[1, 2, 3, 7], &[5, 2, 3, 6, 1, 2, 3], 1, &[7]);
    }

    #[test]
    fn a_text_that_repeats_itself_is_guessed_round_and_round() {
        check(&[], &[1, 2, 3, 1, 2, 3], 7, &[1, 2, 3, 1, 2, 3, 1]);
        check(&[], &[4, 4, 4], 3, &[4, 4, 4]);
    }

    #[test]
    fn only_the_end_of_a_long_input_is_looked_at() {
        let mut input: Vec<u32> = (0..5_000).collect();
        check(&input, &[10, 11, 12], 1, &[]);
        input.extend([10, 11, 12, 77, 1]);
        check(&input, &[10, 11, 12], 1, &[77]);
    }
}
