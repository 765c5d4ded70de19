//! Which tokens a text's pieces begin: each token is told with the piece that it begins in.
//!
//! It follows from the text and its tokens alone, so that it is the same while an answer grows and of the reply that is
//! kept. Tokens do not always spell the text: the blanks that they begin with may be dropped, and some are ahead of it.

use std::ops::Range;

use serde_json::Value;

use super::logprobs::ChatToken;

/// Where the tokens of a text begin in it.
#[derive(Debug, Default)]
pub(super) struct TokenPlaces {
    /// Bytes of all tokens up to each, itself among them.
    ends: Vec<usize>,
    /// Bytes of the blanks that they begin with, together.
    blanks: usize,
    /// Whether there is something else behind those.
    is_begun: bool,
}

impl TokenPlaces {
    /// Of tokens in the order in which they were said.
    pub(super) fn of(tokens: &[ChatToken]) -> Self {
        let mut places = Self::default();
        tokens.iter().for_each(|token| places.push(token));
        places
    }

    /// The same of tokens as they stand in a reply.
    pub(super) fn of_kept(tokens: &[Value]) -> Self {
        let mut places = Self::default();
        tokens.iter().for_each(|token| places.push_kept(token));
        places
    }

    /// A further token.
    pub(super) fn push(&mut self, ChatToken { chosen, .. }: &ChatToken) {
        self.add(&chosen.token, chosen.bytes.as_ref().map(Vec::len));
    }

    /// The same, as it stands in a reply.
    pub(super) fn push_kept(&mut self, token: &Value) {
        self.add(token["token"].as_str().unwrap_or_default(), token["bytes"].as_array().map(Vec::len));
    }

    /// `bytes`: how many the token has, where that is told.
    fn add(&mut self, text: &str, bytes: Option<usize>) {
        if !self.is_begun {
            let blanks = leading_blanks(text);
            self.blanks += blanks;
            self.is_begun = blanks < text.len();
        }
        self.ends.push(self.bytes() + bytes.unwrap_or(text.len()));
    }

    fn bytes(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Bytes of the tokens in front of what the text begins with.
    fn dropped(&self, text: &str) -> usize {
        self.blanks.saturating_sub(leading_blanks(text))
    }

    /// How many tokens begin in front of a place of a text.
    pub(super) fn begun_before(&self, text: &str, place: usize) -> usize {
        if place == 0 {
            return 0;
        }
        let bytes = place + self.dropped(text);
        // Behind each of those that end there another one begins.
        self.ends.len().min(self.ends.partition_point(|end| *end < bytes) + 1)
    }

    /// Whether all tokens are known that begin in front of a place of a text, whatever comes behind them.
    fn reach(&self, text: &str, place: usize) -> bool {
        let is_begun = self.is_begun && leading_blanks(text) < text.len();
        is_begun && self.bytes() >= place + self.dropped(text)
    }
}

/// Bytes of the blanks that a text begins with.
fn leading_blanks(text: &str) -> usize {
    text.len() - text.trim_start_matches(' ').len()
}

/// The tokens of a text that is told in pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceTokens<'a> {
    /// As they are told.
    pub(super) tokens: &'a [Value],
    pub(super) places: &'a TokenPlaces,
    /// Whether these are all tokens of the text, which is whole.
    pub(super) are_all: bool,
}

impl<'a> PieceTokens<'a> {
    /// Those of a piece; `None`: some of them may not be known yet.
    pub(super) fn of_piece(self, text: &str, piece: Range<usize>) -> Option<&'a [Value]> {
        let Self { tokens, places, are_all } = self;
        if !self.reach(text, piece.end) {
            return None;
        }
        let first = places.begun_before(text, piece.start);
        let is_last = are_all && piece.end == text.len();
        let end = if is_last { tokens.len() } else { places.begun_before(text, piece.end) };
        Some(tokens.get(first..end).unwrap_or_default())
    }

    /// Whether all tokens are known that begin in front of a place.
    pub(super) fn reach(self, text: &str, place: usize) -> bool {
        self.are_all || self.places.reach(text, place)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tokens(texts: &[&str]) -> Vec<Value> {
        texts.iter().map(|text| json!({"token": text, "logprob": -1.0, "bytes": text.as_bytes()})).collect()
    }

    /// The tokens of the pieces that end at these places.
    fn pieces(texts: &[&str], text: &str, ends: &[usize]) -> Vec<Vec<String>> {
        let tokens = tokens(texts);
        let places = TokenPlaces::of_kept(&tokens);
        let all = PieceTokens { tokens: &tokens, places: &places, are_all: true };
        let begins = std::iter::once(0).chain(ends.iter().copied());
        let told =
            begins.zip(ends).map(|(begin, end)| all.of_piece(text, begin..*end).expect("all are known"));
        let texts = |tokens: &[Value]| {
            tokens.iter().map(|token| token["token"].as_str().expect("a text").to_owned()).collect()
        };
        told.map(texts).collect()
    }

    #[test]
    fn a_token_is_told_with_the_piece_that_it_begins_in_and_each_once() {
        assert_eq!(pieces(&["one", " two", "!"], "one two!", &[3, 8]), [vec!["one"], vec![" two", "!"]]);
        // The blank in front is in no text, and what has no place in it comes at the end.
        assert_eq!(pieces(&[" one", " two", "<e>"], "one two", &[3, 7]), [vec![" one"], vec![" two", "<e>"]]);
        assert_eq!(pieces(&[" ", "one", " two"], "one two", &[3, 7]), [vec![" ", "one"], vec![" two"]]);
        // One that is of two pieces, and a character of two tokens.
        assert_eq!(pieces(&["one t", "wo"], "one two", &[3, 7]), [vec!["one t"], vec!["wo"]]);
        let halves = [json!({"token": "?", "bytes": [0xc3]}), json!({"token": "?", "bytes": [0xa9]})];
        assert_eq!(TokenPlaces::of_kept(&halves).begun_before("é", 2), 2);
        assert_eq!(pieces(&[], "one two", &[3, 7]), [Vec::<String>::new(), Vec::new()]);
        let without_bytes = [json!({"token": "é", "bytes": null}), json!({"token": "b", "bytes": null})];
        assert_eq!(TokenPlaces::of_kept(&without_bytes).begun_before("éb", 2), 1);
    }

    #[test]
    fn a_piece_waits_until_its_tokens_are_known_and_then_has_those_that_it_has_at_the_end() {
        let texts = ["  ", " one", " two", " three"];
        let (text, all) = ("  one two three", tokens(&texts));
        let whole = pieces(&texts, text, &[5, 9, 15]);
        assert_eq!(whole, [vec!["  ", " one"], vec![" two"], vec![" three"]]);
        for known in 0..=all.len() {
            let places = TokenPlaces::of_kept(&all[..known]);
            let so_far = PieceTokens { tokens: &all[..known], places: &places, are_all: false };
            for (number, piece) in [0..5, 5..9, 9..15].into_iter().enumerate() {
                let told = so_far.of_piece(text, piece);
                assert_eq!(told.is_some(), known >= number + 2, "piece {number} of {known} tokens");
                if let Some(told) = told {
                    let told: Vec<&str> = told.iter().filter_map(|token| token["token"].as_str()).collect();
                    assert_eq!(told, whole[number], "piece {number} of {known} tokens");
                }
            }
        }
        let blank = TokenPlaces::of_kept(&all[..1]);
        assert!(!blank.reach("", 0), "what is dropped is not known yet");
    }
}
