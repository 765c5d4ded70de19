//! What gateways tell each other of an answer that grows: what is new of it, a piece after the other, so that a copy of it
//! is told in the same events. Numbers keep all of their bits, which digits that are read again may not.

use base::{Logprob, Time, TokenId, TokenLogprob};
use serde::{Deserialize, Serialize};
use serving::error::{RequestError, internal};
use serving::relquery_state::RelQueryState;

use super::answer_copy::is_waiting;

/// Most bytes of the text of a piece.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Most tokens of a piece: each may come with twenty others and their bytes.
const TOKENS_MAX: usize = 256;

#[derive(Deserialize, Serialize)]
struct AnswerPiece {
    text: String,
    /// Where it is told how likely they were.
    tokens: Vec<PieceToken>,
}

#[derive(Deserialize, Serialize)]
struct PieceToken {
    chosen: PieceLogprob,
    is_hidden: bool,
    top: Vec<PieceLogprob>,
}

#[derive(Deserialize, Serialize)]
struct PieceLogprob {
    id: Option<u32>,
    token: String,
    /// The logarithm's own.
    bits: u64,
    bytes: Option<Vec<u8>>,
}

impl From<&Logprob> for PieceLogprob {
    fn from(Logprob { id, token, logprob, bytes }: &Logprob) -> Self {
        let id = id.map(|id| id.0);
        Self { id, token: token.clone(), bits: logprob.to_bits(), bytes: bytes.clone() }
    }
}

impl From<PieceLogprob> for Logprob {
    fn from(PieceLogprob { id, token, bits, bytes }: PieceLogprob) -> Self {
        Self { id: id.map(TokenId), token, logprob: f64::from_bits(bits), bytes }
    }
}

impl From<&TokenLogprob> for PieceToken {
    fn from(TokenLogprob { chosen, is_hidden, top }: &TokenLogprob) -> Self {
        Self { chosen: chosen.into(), is_hidden: *is_hidden, top: top.iter().map(Into::into).collect() }
    }
}

impl From<PieceToken> for TokenLogprob {
    fn from(PieceToken { chosen, is_hidden, top }: PieceToken) -> Self {
        Self { chosen: chosen.into(), is_hidden, top: top.into_iter().map(Into::into).collect() }
    }
}

/// How much of an answer stands in pieces.
#[derive(Debug, Default)]
pub(crate) struct AnswerPieces {
    /// The first one says that the model has begun.
    has_begun: bool,
    bytes: usize,
    tokens: usize,
}

impl AnswerPieces {
    /// What is new of an answer, as JSON; none while nothing is. What is more than a piece may have is in the next.
    pub(crate) fn next_piece(&mut self, relquery: &RelQueryState) -> Option<String> {
        let (text, tokens) = {
            let state = relquery.read();
            let row = state.rows.first().filter(|row| !is_waiting(row))?;
            let text = row.text.get(self.bytes..).unwrap_or_default();
            let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
            let tokens = row.logprobs.get(self.tokens..).unwrap_or_default();
            (text.to_owned(), tokens[..tokens.len().min(TOKENS_MAX)].to_vec())
        };
        if self.has_begun && text.is_empty() && tokens.is_empty() {
            return None;
        }
        self.has_begun = true;
        self.bytes += text.len();
        self.tokens += tokens.len();
        let piece = AnswerPiece { text, tokens: tokens.iter().map(PieceToken::from).collect() };
        serde_json::to_string(&piece).map_err(internal).ok()
    }
}

/// Puts a piece onto a copy of its answer.
pub(crate) fn put_piece(piece: &str, copy: &RelQueryState, now: Time) -> Result<(), RequestError> {
    let AnswerPiece { text, tokens } = serde_json::from_str(piece).map_err(internal)?;
    let tokens: Vec<TokenLogprob> = tokens.into_iter().map(TokenLogprob::from).collect();
    copy.started(0, now, now);
    copy.keep_logprobs(0, &tokens);
    copy.token(0, &text, false, now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use serving::relquery_state::AnswerRow;

    use super::*;
    use crate::wire::openai::BackgroundEvents;
    use crate::wire::openai::response_events::tests::{SAID, calling, read, relquery, token};

    fn row(relquery: &RelQueryState) -> AnswerRow {
        relquery.read().rows[0].clone()
    }

    /// A token that is this text, and another in its place; logarithms of many digits, and of nothing.
    fn likely(place: usize, text: &str) -> TokenLogprob {
        let mut told = token(text.as_bytes());
        told.chosen.id = Some(TokenId(place as u32));
        told.chosen.logprob = -1.0 / (place as f64 + 3.0);
        let other = Logprob { id: None, token: "?".into(), logprob: f64::NEG_INFINITY, bytes: None };
        told.top = vec![told.chosen.clone(), other];
        told.is_hidden = place % 5 == 1;
        told
    }

    #[test]
    fn a_copy_of_an_answer_is_told_in_the_same_events_at_any_pace() {
        for pace in [1, 3, 1_000] {
            let (original, copy) = (relquery(), relquery());
            let mut envelope = calling(&original);
            envelope.echo.has_logprobs = true;
            let events = || BackgroundEvents::new(json!(envelope.queued()), None);
            let (mut here, mut there) = (events(), events());
            let (mut told_here, mut told_there) = (String::new(), String::new());
            let mut pieces = AnswerPieces::default();
            assert_eq!(pieces.next_piece(&original), None, "the model has not begun");
            for (place, character) in SAID.chars().enumerate() {
                let text = character.to_string();
                original.keep_logprobs(0, &[likely(place, &text)]);
                original.token(0, &text, place == 0, Time(1));
                if place % pace == 0 || place + 1 == SAID.chars().count() {
                    told_here.push_str(&here.look(&envelope, &original).0);
                    let piece = pieces.next_piece(&original).expect("something is new");
                    put_piece(&piece, &copy, Time(9)).expect("a piece");
                    told_there.push_str(&there.look(&envelope, &copy).0);
                }
            }
            assert_eq!(pieces.next_piece(&original), None, "nothing is new");
            let (row, copied) = (row(&original), row(&copy));
            assert_eq!((row.text, row.logprobs), (copied.text, copied.logprobs));
            let told: Vec<Value> = read(&told_here);
            assert!(told.iter().any(|event| event["type"] == "response.output_item.done"), "{told:?}");
            assert_eq!(read(&told_there), told, "pace {pace}");
        }
    }

    #[test]
    fn that_the_model_has_begun_is_a_piece_and_a_long_answer_is_several() {
        let (original, copy) = (relquery(), relquery());
        let mut pieces = AnswerPieces::default();
        original.started(0, Time(1), Time(1));
        let begun = pieces.next_piece(&original).expect("it has begun");
        put_piece(&begun, &copy, Time(2)).expect("a piece");
        assert!(!is_waiting(&row(&copy)));
        let said = "é".repeat(TEXT_BYTES_MAX);
        original.token(0, &said, true, Time(3));
        let tokens: Vec<_> = (0..TOKENS_MAX + 1).map(|place| likely(place, "é")).collect();
        original.keep_logprobs(0, &tokens);
        let mut count = 0;
        while let Some(piece) = pieces.next_piece(&original) {
            assert!(piece.len() < 3 * TEXT_BYTES_MAX, "{} bytes", piece.len());
            put_piece(&piece, &copy, Time(4)).expect("a piece");
            count += 1;
        }
        assert_eq!(count, 2);
        let copied = row(&copy);
        assert!(copied.text == said && copied.logprobs == tokens);
    }
}
