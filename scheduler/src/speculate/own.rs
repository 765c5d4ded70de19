//! What followed a row's last tokens before, in its own output or input: extracted cells are copies, and lists
//! repeat their form.

use base::TokenId;

use super::Spoken;

/// Most tokens of an input that are looked at, the last ones: a row's cells come behind its template.
const INPUT_MAX: usize = 4_096;

/// At most `most` tokens that followed the last three of the row's output, or else the last two, where they stood
/// last before. What runs over the end of the output goes on as the guess itself does.
pub(super) fn repeated(row: Spoken<'_>, most: usize) -> Vec<TokenId> {
    if most == 0 {
        return Vec::new();
    }
    match find(row, 3).or_else(|| find(row, 2)) {
        Some(source) => continued(source, most),
        None => Vec::new(),
    }
}

/// What stands behind the last place but the end where the last `count` tokens of the output stand.
fn find<'a>(row: Spoken<'a>, count: usize) -> Option<&'a [TokenId]> {
    let Spoken { input, output } = row;
    let last = &output[output.len().checked_sub(count)?..];
    let behind = |text: &'a [TokenId], searched: &[TokenId]| {
        let at = searched.windows(count).rposition(|window| window == last)?;
        text.get(at + count..).filter(|behind| !behind.is_empty())
    };
    let input = &input[input.len().saturating_sub(INPUT_MAX)..];
    behind(output, &output[..output.len() - 1]).or_else(|| behind(input, input))
}

/// The first `most` tokens of `source`; a shorter one begins again.
fn continued(source: &[TokenId], most: usize) -> Vec<TokenId> {
    source.iter().copied().cycle().take(most).collect()
}
