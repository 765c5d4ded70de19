//! Cuts a text into contiguous fragments of at most so many tokens (Span Queries, section 3.1), at the end of
//! a paragraph or a sentence where one is near.
//!
//! Pure: the text and its tokens' places come in, places go out, the same ones every time. Every character
//! that is not white space is in a fragment.

use std::ops::Range;

use crate::error::Error;

/// A token that stands for more bytes than this (a long unknown word, say) counts as several.
const SPAN_BYTES_MAX: usize = 64;
/// White space longer than this ends a fragment, or it would make one of any length.
const GAP_BYTES_MAX: usize = 256;

/// How a text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Most tokens of a fragment.
    pub tokens_max: usize,
    /// Tokens at the end of a fragment that the next one begins with; at most half of `tokens_max`.
    pub overlap: usize,
}

impl Cut {
    /// Refuses a cut that would not move on.
    pub fn validate(&self) -> Result<(), Error> {
        if self.tokens_max == 0 {
            return Err(Error::Invalid { field: "fragment_tokens", reason: "must be positive".into() });
        }
        if self.overlap > self.tokens_max / 2 {
            let reason = format!("must be at most half of `fragment_tokens`, {}", self.tokens_max / 2);
            return Err(Error::Invalid { field: "overlap", reason });
        }
        Ok(())
    }
}

/// A fragment's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentRange {
    /// Its bytes in the text; white space around it left out.
    pub range: Range<usize>,
    pub tokens: usize,
}

/// How good a place between two tokens is to cut at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Joint {
    Inside,
    Word,
    Line,
    Sentence,
    Paragraph,
}

/// Cuts a text whose tokens stand at `spans`.
pub(crate) fn cut(text: &str, spans: Vec<Range<usize>>, cut: Cut) -> Vec<FragmentRange> {
    let spans = bounded(text, spans);
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < spans.len() {
        let end = end_of(text, &spans, start, cut.tokens_max);
        let from = if start == 0 { 0 } else { spans[start].start };
        let until = spans.get(end).map_or(text.len(), |next| next.start);
        pieces.extend(piece(text, from..until, end - start));
        if end == spans.len() {
            break;
        }
        // The overlap begins with a word, or there is none; nothing overlaps over a long gap.
        let first = end.saturating_sub(cut.overlap).max(start + 1);
        let word = (first..end).find(|place| joint(text, &spans, *place) >= Joint::Word);
        let is_far = gap(text, &spans, end).len() > GAP_BYTES_MAX;
        start = word.filter(|_| !is_far).unwrap_or(end);
    }
    pieces
}

/// The token after the last one of a fragment that begins with token `start`.
fn end_of(text: &str, spans: &[Range<usize>], start: usize, tokens_max: usize) -> usize {
    let last = spans.len().min(start + tokens_max);
    if let Some(far) = (start + 1..last).find(|place| gap(text, spans, *place).len() > GAP_BYTES_MAX) {
        return far;
    }
    if last == spans.len() {
        return last;
    }
    // Not before the middle: a fragment of one short sentence says little. The later of equals.
    let first = start + tokens_max / 2 + 1;
    (first.min(last)..=last).max_by_key(|place| joint(text, spans, *place)).unwrap_or(last)
}

/// A fragment without the white space around it; none where there is nothing else.
fn piece(text: &str, range: Range<usize>, tokens: usize) -> Option<FragmentRange> {
    let whole = text.get(range.clone())?;
    let start = range.start + (whole.len() - whole.trim_start().len());
    let range = start..start + whole.trim().len();
    (!range.is_empty()).then_some(FragmentRange { range, tokens })
}

/// The white space before a token.
fn gap<'a>(text: &'a str, spans: &[Range<usize>], place: usize) -> &'a str {
    text.get(spans[place - 1].end..spans[place].start).unwrap_or_default()
}

/// How good it is to cut before a token.
fn joint(text: &str, spans: &[Range<usize>], place: usize) -> Joint {
    if place == 0 || place == spans.len() {
        return Joint::Paragraph;
    }
    let gap = gap(text, spans, place);
    let before = text.get(..spans[place - 1].end).unwrap_or_default();
    let before = before.trim_end_matches(['"', '\'', ')', ']', '\u{201d}', '\u{2019}', '\u{bb}']);
    // Full stops of scripts that put no space behind them.
    let is_full = before.ends_with(['\u{3002}', '\u{ff01}', '\u{ff1f}']);
    let is_sentence = is_full || !gap.is_empty() && before.ends_with(['.', '!', '?', '\u{2026}']);
    match gap.matches('\n').count() {
        2.. => Joint::Paragraph,
        _ if is_sentence => Joint::Sentence,
        1 => Joint::Line,
        _ if !gap.is_empty() => Joint::Word,
        _ => Joint::Inside,
    }
}

/// Spans in reading order, none of them long, none of them empty, each at characters' borders.
fn bounded(text: &str, spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut short = Vec::with_capacity(spans.len());
    let mut at = 0;
    for span in spans {
        // Several tokens may stand for one character's bytes: the first has it.
        let mut start = span.start.max(at);
        let end = span.end.min(text.len());
        while start < end {
            let mut next = end.min(start + SPAN_BYTES_MAX);
            while next < end && !text.is_char_boundary(next) {
                next += 1;
            }
            short.push(start..next);
            start = next;
        }
        at = at.max(end);
    }
    short
}

#[cfg(test)]
mod tests {
    use proptest::strategy::{Just, Strategy as _};

    use super::*;

    /// A token per word.
    fn words(text: &str) -> Vec<Range<usize>> {
        let mut spans = Vec::new();
        let mut start = None;
        for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
            match (c.is_whitespace(), start) {
                (true, Some(from)) => {
                    spans.push(from..at);
                    start = None;
                }
                (false, None) => start = Some(at),
                _ => {}
            }
        }
        spans
    }

    fn check(text: &str, tokens_max: usize, overlap: usize, expected: &[&str]) {
        let pieces = cut(text, words(text), Cut { tokens_max, overlap });
        let texts: Vec<&str> = pieces.iter().map(|piece| &text[piece.range.clone()]).collect();
        assert_eq!(texts, expected, "{text:?}");
        assert!(pieces.iter().all(|piece| piece.tokens <= tokens_max), "{pieces:?}");
    }

    #[test]
    fn a_fragment_ends_with_a_paragraph_then_a_sentence_then_a_line_then_a_word() {
        check("a b c d\n\ne f. g h i", 8, 0, &["a b c d\n\ne f.", "g h i"]);
        check("a b c d e\n\nf. g h i", 8, 0, &["a b c d e", "f. g h i"]);
        check("a b c d e f\ng h i", 8, 0, &["a b c d e f", "g h i"]);
        check("a b c d e f g h i", 8, 0, &["a b c d e f g h", "i"]);
        check("a b c \"d e f.\" g h i", 8, 0, &["a b c \"d e f.\"", "g h i"]);
    }

    #[test]
    fn an_overlap_repeats_the_end_of_a_fragment() {
        check("a b c d e f g h i", 4, 1, &["a b c d", "d e f g", "g h i"]);
        check("a b c d e f g h i", 4, 2, &["a b c d", "c d e f", "e f g h", "g h i"]);
    }

    #[test]
    fn white_space_and_unknown_words_of_any_length_make_no_long_fragment() {
        check("", 4, 0, &[]);
        check(" \n ", 4, 0, &[]);
        check(&format!("a b{}c", " ".repeat(1_000)), 4, 2, &["a b", "c"]);
        let long = "\u{e4}".repeat(10_000);
        let pieces = cut(&long, vec![0..long.len(); 1], Cut { tokens_max: 4, overlap: 0 });
        assert!(pieces.iter().all(|piece| piece.range.len() <= 4 * (SPAN_BYTES_MAX + 3)));
        assert_eq!(pieces.iter().map(|piece| piece.range.len()).sum::<usize>(), long.len());
    }

    proptest::proptest! {
        #[test]
        fn every_character_is_in_a_fragment_and_fragments_go_on(
            text in "([a-c\u{e4}]{1,5}[.!]?[ \n]{0,3}){0,60}",
            (tokens_max, overlap) in (1_usize..9).prop_flat_map(|max| (Just(max), 0..=max / 2)),
        ) {
            let pieces = cut(&text, words(&text), Cut { tokens_max, overlap });
            let mut covered = 0;
            for piece in &pieces {
                let between = text[covered.min(piece.range.start)..piece.range.start].trim();
                proptest::prop_assert_eq!(between, "");
                proptest::prop_assert!(piece.tokens <= tokens_max && piece.range.end > covered);
                covered = piece.range.end;
            }
            proptest::prop_assert_eq!(text[covered..].trim(), "");
        }
    }
}
