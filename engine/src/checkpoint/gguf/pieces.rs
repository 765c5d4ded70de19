//! Merges of a BPE vocabulary from its pieces' scores.
//!
//! SentencePiece keeps a score per piece and merges whichever neighbours make the piece of the highest score;
//! merges in order of the pieces they make say the same. Of pairs that make one piece, and of pieces with one
//! score (Llama 2's runs of spaces), the order is that of ids: which gives the merges of the published Llama
//! 2 tokenizer.json, all 61,249 in their order.

use std::collections::HashMap;

/// Most characters of a piece; SentencePiece makes none of more than 16 unless told to.
const CHARACTERS_MAX: usize = 256;

/// Whether a piece is white space alone, which SentencePiece writes its own way.
pub(crate) fn is_white_space(piece: &str) -> bool {
    piece.chars().all(|character| character.is_whitespace() || character == '\u{2581}')
}

/// Every pair of pieces that makes a piece: by the score of what it makes, highest first, then by ids.
pub(super) fn merges_of_scores<'a>(
    pieces: &[(&'a str, u32, f64)],
) -> Result<Vec<(&'a str, &'a str)>, String> {
    let ids: HashMap<&str, u32> = pieces.iter().map(|(text, id, _)| (*text, *id)).collect();
    let mut merges = Vec::new();
    for (text, id, score) in pieces {
        let length = text.chars().count();
        if length > CHARACTERS_MAX {
            return Err(format!("token {id} has {length} characters, at most {CHARACTERS_MAX} can be"));
        }
        let cuts = text.char_indices().skip(1).map(|(at, _)| text.split_at(at));
        let pair = |(left, right)| Some((*ids.get(left)?, *ids.get(right)?, left, right));
        let mut pairs: Vec<(u32, u32, &str, &str)> = cuts.filter_map(pair).collect();
        pairs.sort_unstable_by_key(|(left, right, ..)| (*left, *right));
        merges.extend(pairs.into_iter().map(|(_, _, left, right)| (*score, left, right)));
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0)); // stable: what is equal stays in the order of ids
    Ok(merges.into_iter().map(|(.., left, right)| (left, right)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_come_in_the_order_of_what_they_make() {
        let pieces = [
            ("a", 0, 0.0),
            ("b", 1, 0.0),
            ("ab", 2, -2.0),
            ("abb", 3, -3.0),
            ("bb", 4, -1.0),
            ("xy", 5, 9.0),
        ];
        let merges = merges_of_scores(&pieces).expect("short pieces");
        assert_eq!(merges, [("b", "b"), ("a", "b"), ("a", "bb"), ("ab", "b")]);
    }

    #[test]
    fn a_piece_of_endless_length_is_refused() {
        let text = "a".repeat(CHARACTERS_MAX + 1);
        let error = merges_of_scores(&[(&text, 7, 0.0)]).expect_err("refused");
        assert_eq!(error, "token 7 has 257 characters, at most 256 can be");
    }
}
