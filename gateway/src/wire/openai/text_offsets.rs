//! Where an output's tokens stand in its text: `text_offset` of completions.
//!
//! Tokens do not always spell the text: the blank that a first token begins with may be dropped, a character may be of
//! several tokens, and a stop string or a hidden special token has no place in it. So places are counted in the text itself.

use base::{Logprob, TokenLogprob};

/// How far an output's tokens were placed.
#[derive(Clone, Debug, Default)]
pub(super) struct TextOffsets {
    /// Characters in front of the output.
    before: usize,
    /// Bytes of all tokens so far.
    bytes: usize,
    /// Bytes of leading blanks that the text does not have; none before the first token.
    dropped: Option<usize>,
    /// Bytes of the text that were counted, and the characters that they are.
    counted: (usize, usize),
    /// Where the next token stands if each token has characters of its own.
    next: usize,
}

impl TextOffsets {
    /// Those of an output behind so many characters.
    pub(super) fn behind(before: usize) -> Self {
        Self { before, ..Self::default() }
    }

    /// Characters in front of each of the next tokens. `text`: of the output so far; `is_over`: no more of it comes, and
    /// what a token has beyond its end is in no text.
    pub(super) fn of(&mut self, tokens: &[TokenLogprob], (text, is_over): (&str, bool)) -> Vec<usize> {
        if self.dropped.is_none() && tokens.iter().any(|token| !token.is_hidden) {
            self.dropped =
                Some(leading_blanks(tokens).saturating_sub(text.len() - text.trim_start_matches(' ').len()));
        }
        let place = |token: &TokenLogprob| self.before + self.next_offset(token, (text, is_over));
        tokens.iter().map(place).collect()
    }

    fn next_offset(&mut self, token: &TokenLogprob, (text, is_over): (&str, bool)) -> usize {
        let place = self.bytes.saturating_sub(self.dropped.unwrap_or_default());
        // Of what is held back, in case it begins a stop string, the text is not known yet.
        let is_ahead = place > text.len() && !is_over;
        let offset = if is_ahead { self.next } else { self.characters_before(place, text) };
        self.next = offset;
        if !token.is_hidden {
            self.bytes += length(&token.chosen);
            self.next += token.chosen.token.chars().count();
        }
        offset
    }

    /// Characters of the text that end at or before a place in it.
    fn characters_before(&mut self, place: usize, text: &str) -> usize {
        let (mut at, mut characters) = self.counted;
        for character in text.get(at..).unwrap_or_default().chars() {
            if at + character.len_utf8() > place {
                break;
            }
            at += character.len_utf8();
            characters += 1;
        }
        self.counted = (at, characters);
        characters
    }
}

/// Bytes of a token: those of its text where they are not told.
fn length(token: &Logprob) -> usize {
    token.bytes.as_ref().map_or(token.token.len(), Vec::len)
}

/// Bytes of blanks that tokens of text begin with, together.
fn leading_blanks(tokens: &[TokenLogprob]) -> usize {
    let mut blanks = 0;
    for TokenLogprob { chosen, .. } in tokens.iter().filter(|token| !token.is_hidden) {
        let own = chosen.token.len() - chosen.token.trim_start_matches(' ').len();
        blanks += own;
        if own < chosen.token.len() {
            break;
        }
    }
    blanks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(bytes: &[u8]) -> TokenLogprob {
        let token = String::from_utf8_lossy(bytes).into_owned();
        TokenLogprob {
            chosen: Logprob { id: None, token, logprob: -1.0, bytes: Some(bytes.to_vec()) },
            is_hidden: false,
            top: Vec::new(),
        }
    }

    fn tokens(texts: &[&str]) -> Vec<TokenLogprob> {
        texts.iter().map(|text| token(text.as_bytes())).collect()
    }

    #[test]
    fn offsets_are_places_in_the_text_whatever_tokens_spell() {
        let whole = |texts: &[&str], text: &str| TextOffsets::default().of(&tokens(texts), (text, true));
        assert_eq!(whole(&["é", "!", "x"], "é!x"), [0, 1, 2]);
        assert_eq!(whole(&[" The", " film"], "The film"), [0, 3], "the blank in front is in no text");
        assert_eq!(whole(&[" ", "The", " film"], "The film"), [0, 0, 3]);
        assert_eq!(whole(&["  ", " x", "y"], "  xy"), [0, 1, 3], "one of three is dropped");
        assert_eq!(whole(&[" The", " film"], " The film"), [0, 4], "and here it is not");
        assert_eq!(whole(&["a", "b", "END", "s"], "ab"), [0, 1, 2, 2], "a stop string");
        assert_eq!(whole(&[" "], ""), [0]);
        let halves = [token(b"a"), token(&[0xc3]), token(&[0xa9]), token(b"b")];
        assert_eq!(TextOffsets::default().of(&halves, ("aéb", true)), [0, 1, 1, 2]);
        let without_bytes = |text: &str| {
            let chosen = Logprob { id: None, token: text.into(), logprob: -1.0, bytes: None };
            TokenLogprob { chosen, is_hidden: false, top: Vec::new() }
        };
        assert_eq!(
            TextOffsets::default().of(&[without_bytes("é"), without_bytes("b")], ("éb", true)),
            [0, 1]
        );
    }

    #[test]
    fn what_is_hidden_has_no_place_in_the_text_streamed_or_whole() {
        let hidden = TokenLogprob { is_hidden: true, ..token(b"<s>") };
        let all = [hidden.clone(), token(b" The"), hidden.clone(), token(b" film"), hidden];
        assert_eq!(TextOffsets::default().of(&all, ("The film", true)), [0, 0, 3, 3, 8]);
        let mut offsets = TextOffsets::default();
        assert_eq!(offsets.of(&all[..1], ("", false)), [0]);
        assert_eq!(offsets.of(&all[1..3], ("The", false)), [0, 3]);
        // The text may be held back yet.
        assert_eq!(offsets.of(&all[3..], ("The", false)), [3, 8]);
        assert_eq!(offsets.of(&[token(b"!")], ("The film!", true)), [8]);
    }

    #[test]
    fn a_stream_goes_on_where_it_was_and_tokens_may_be_ahead_of_their_text() {
        let mut offsets = TextOffsets::default();
        assert_eq!(offsets.of(&[], ("", false)), [0_usize; 0]);
        assert_eq!(offsets.of(&tokens(&[" é"]), ("é", false)), [0]);
        assert_eq!(offsets.of(&tokens(&["b", "EN", "D"]), ("éb", false)), [1, 2, 4], "held back");
        assert_eq!(offsets.of(&tokens(&["x"]), ("ébENDx", true)), [5]);
        let mut behind = TextOffsets::behind(7);
        assert_eq!(behind.of(&tokens(&["a"]), ("a", false)), [7]);
        assert_eq!(behind.of(&tokens(&["b"]), ("ab", true)), [8]);
    }
}
