//! Incremental decoding that agrees, text for text, with the tokenizers crate's own decoding.
//!
//! That crate decodes a whole list at once. The few decoders that the supported families use can be
//! followed token by token with a bounded state; any other is refused at load, not approximated.

use serde_json::Value;
use tokenizers::Tokenizer;

use crate::checkpoint::error::CheckpointError;
use crate::text::incremental::{DecodeState, TOKENIZER_FILE, take_characters, take_rest};

/// How the pieces of a vocabulary become text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decoding {
    /// Characters stand for bytes (GPT-2, Llama 3, Qwen, OPT); the demo model strips a leading space.
    ByteLevel { strip: Option<(char, usize)> },
    /// SentencePiece by steps (Llama 2, Mistral): replacements, `<0x..>` bytes, a leading space lost.
    Pieces { replacements: Vec<(String, String)>, has_bytes: bool, strip: Option<(char, usize)> },
    /// SentencePiece in one step: `mark` is a space, and nothing in the first piece where `loses_first`.
    Metaspace { mark: char, loses_first: bool },
    /// No decoder: pieces are words.
    Words,
}

impl Decoding {
    /// The decoding of this tokenizer.
    pub(crate) fn of(tokenizer: &Tokenizer) -> Result<Self, CheckpointError> {
        let Some(decoder) = tokenizer.get_decoder() else { return Ok(Self::Words) };
        let value = serde_json::to_value(decoder)
            .map_err(|error| CheckpointError::malformed(TOKENIZER_FILE, error))?;
        let mut steps = Vec::new();
        flatten(&value, &mut steps);
        let kinds: Vec<&str> = steps.iter().map(|step| step["type"].as_str().unwrap_or("?")).collect();
        match kinds[..] {
            ["ByteLevel"] => Ok(Self::ByteLevel { strip: None }),
            // The byte-level step joins its pieces, so stripping acts on the whole output.
            ["ByteLevel", "Strip"] if strip_of(steps[1]).is_some() => {
                Ok(Self::ByteLevel { strip: strip_of(steps[1]) })
            }
            ["Metaspace"] => Ok(Self::Metaspace {
                mark: one_char(&steps[0]["replacement"]).unwrap_or('\u{2581}'),
                loses_first: steps[0]["prepend_scheme"] != "never",
            }),
            _ => Self::pieces(&steps).ok_or_else(|| {
                let reason = format!("the decoder {} is not supported", kinds.join(", "));
                CheckpointError::field(TOKENIZER_FILE, "decoder", reason)
            }),
        }
    }

    /// Replace*, ByteFallback?, Fuse?, Strip? in this order; stripping only what was fused.
    fn pieces(steps: &[&Value]) -> Option<Self> {
        let (mut replacements, mut has_bytes, mut is_fused, mut strip) = (Vec::new(), false, false, None);
        for step in steps {
            match step["type"].as_str()? {
                "Replace" if !has_bytes && !is_fused => {
                    let from = step["pattern"]["String"].as_str().filter(|from| !from.is_empty())?;
                    replacements.push((from.to_owned(), step["content"].as_str()?.to_owned()));
                }
                "ByteFallback" if !has_bytes && !is_fused => has_bytes = true,
                "Fuse" if strip.is_none() => is_fused = true,
                "Strip" if is_fused && strip.is_none() => strip = Some(strip_of(step)?),
                _ => return None,
            }
        }
        Some(Self::Pieces { replacements, has_bytes, strip })
    }

    /// The state before the first token.
    pub(crate) fn start(&self) -> DecodeState {
        let strip_left = match self {
            Self::Pieces { strip: Some((_, count)), .. } | Self::ByteLevel { strip: Some((_, count)) } => {
                *count
            }
            _ => 0,
        };
        DecodeState { pending: Vec::new(), strip_left, is_started: false }
    }

    /// Text that is final with `piece`.
    pub(crate) fn push(&self, state: &mut DecodeState, piece: &str) -> String {
        let is_first = !std::mem::replace(&mut state.is_started, true);
        match self {
            Self::ByteLevel { .. } => {
                match byte_level(piece) {
                    Some(bytes) => state.pending.extend(bytes),
                    None => state.pending.extend(piece.as_bytes()), // an added token, written as it is
                }
                let text = take_characters(&mut state.pending);
                self.strip(state, text)
            }
            Self::Pieces { replacements, has_bytes, .. } => {
                let piece = replace(piece, replacements);
                if let Some(byte) = fallback_byte(&piece).filter(|_| *has_bytes) {
                    state.pending.push(byte);
                    return String::new();
                }
                let text = take_byte_run(&mut state.pending) + &piece;
                self.strip(state, text)
            }
            Self::Metaspace { mark, loses_first } => {
                if is_first && *loses_first {
                    piece.replace(*mark, "")
                } else {
                    piece.replace(*mark, " ")
                }
            }
            Self::Words if is_first => piece.to_owned(),
            Self::Words => format!(" {piece}"),
        }
    }

    /// Text that was held back.
    pub(crate) fn flush(&self, state: &mut DecodeState) -> String {
        match self {
            Self::Pieces { .. } => {
                let text = take_byte_run(&mut state.pending);
                self.strip(state, text)
            }
            Self::ByteLevel { .. } => {
                let text = take_rest(&mut state.pending);
                self.strip(state, text)
            }
            Self::Metaspace { .. } | Self::Words => take_rest(&mut state.pending),
        }
    }

    /// The bytes that `piece` stands for behind others.
    pub(crate) fn bytes(&self, piece: &str) -> Vec<u8> {
        match self {
            Self::ByteLevel { .. } => byte_level(piece).unwrap_or_else(|| piece.as_bytes().to_vec()),
            Self::Pieces { replacements, has_bytes, .. } => {
                let piece = replace(piece, replacements);
                match fallback_byte(&piece).filter(|_| *has_bytes) {
                    Some(byte) => vec![byte],
                    None => piece.into_bytes(),
                }
            }
            Self::Metaspace { mark, .. } => piece.replace(*mark, " ").into_bytes(),
            Self::Words => format!(" {piece}").into_bytes(),
        }
    }

    /// Whether a space in front of an output is lost.
    pub(crate) fn drops_leading_space(&self) -> bool {
        match self {
            Self::Pieces { strip, .. } | Self::ByteLevel { strip } => {
                matches!(strip, Some((' ', count)) if *count > 0)
            }
            Self::Metaspace { loses_first, .. } => *loses_first,
            Self::Words => true,
        }
    }

    /// Removes what is left to be stripped from the front of the whole output.
    fn strip(&self, state: &mut DecodeState, text: String) -> String {
        let (Self::Pieces { strip: Some((content, _)), .. } | Self::ByteLevel { strip: Some((content, _)) }) =
            self
        else {
            return text;
        };
        let mut rest = text.as_str();
        while state.strip_left > 0 && !rest.is_empty() {
            match rest.strip_prefix(*content) {
                Some(after) => (rest, state.strip_left) = (after, state.strip_left - 1),
                None => state.strip_left = 0,
            }
        }
        rest.to_owned()
    }
}

/// The bytes of a byte-level piece; `None` for an added token, which is written as it is.
fn byte_level(piece: &str) -> Option<Vec<u8>> {
    piece.chars().map(byte_of).collect()
}

/// A piece after all replacements.
fn replace(piece: &str, replacements: &[(String, String)]) -> String {
    replacements.iter().fold(piece.to_owned(), |piece, (from, to)| piece.replace(from, to))
}

/// A run of fallback bytes as text. One broken byte makes the whole run replacement characters, one
/// each: so a run is held until it ends.
fn take_byte_run(pending: &mut Vec<u8>) -> String {
    let bytes = std::mem::take(pending);
    let count = bytes.len();
    String::from_utf8(bytes).unwrap_or_else(|_| char::REPLACEMENT_CHARACTER.to_string().repeat(count))
}

/// The byte of a piece like `<0x0A>`.
fn fallback_byte(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The byte that a character of byte-level BPE stands for (Radford et al. 2019, GPT-2): printable
/// Latin-1 stands for itself, the 68 other bytes follow from U+0100 in order.
fn byte_of(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// Decoders in order, sequences opened.
fn flatten<'a>(decoder: &'a Value, steps: &mut Vec<&'a Value>) {
    match decoder["decoders"].as_array() {
        Some(inner) => inner.iter().for_each(|decoder| flatten(decoder, steps)),
        None => steps.push(decoder),
    }
}

/// What a `Strip` step removes from the front; a step that also strips the end cannot be followed.
fn strip_of(step: &Value) -> Option<(char, usize)> {
    let count = usize::try_from(step["start"].as_u64()?).ok()?;
    Some((one_char(&step["content"])?, count)).filter(|_| step["stop"] == 0)
}

/// The character of a one-character string.
fn one_char(value: &Value) -> Option<char> {
    let mut characters = value.as_str()?.chars();
    characters.next().filter(|_| characters.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!((byte_of('Ġ'), byte_of('Ċ'), byte_of(' ')), (Some(b' '), Some(b'\n'), None));
    }

    #[test]
    fn the_bytes_of_pieces_are_their_text_behind_a_space_that_is_lost() {
        let replacements = vec![("\u{2581}".to_owned(), " ".to_owned())];
        let strip = Some((' ', 1));
        let cases = [
            (Decoding::ByteLevel { strip }, ["\u{120}good", "\u{120}enough", "\u{c3}", "\u{a9}"]),
            (
                Decoding::Pieces { replacements, has_bytes: true, strip },
                ["\u{2581}good", "\u{2581}x", "<0xC3>", "<0xA9>"],
            ),
            (
                Decoding::Metaspace { mark: '\u{2581}', loses_first: true },
                ["\u{2581}good", "\u{2581}x", "y", "\u{e9}"],
            ),
            (Decoding::Words, ["good", "enough", "a", "b"]),
        ];
        for (decoding, pieces) in cases {
            assert!(decoding.drops_leading_space(), "{decoding:?}");
            let bytes: Vec<u8> = pieces.iter().flat_map(|piece| decoding.bytes(piece)).collect();
            let mut state = decoding.start();
            let mut text: String = pieces.iter().map(|piece| decoding.push(&mut state, piece)).collect();
            text += &decoding.flush(&mut state);
            assert_eq!(format!(" {text}").into_bytes(), bytes, "{decoding:?}");
        }
        assert!(!Decoding::ByteLevel { strip: None }.drops_leading_space());
    }
}
