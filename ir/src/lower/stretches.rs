//! A row's prompt cut at the special tokens of the chat template's own text, and the tokens of many such
//! prompts: what their stretches have in common at the beginning is tokenized once.

use std::collections::BTreeMap;

use base::{After, MarkupPart, SpanKind, TokenId, Tokenizer};

use super::fill::{Filled, Spans};

/// A row's prompt, before its text is tokens.
#[derive(Debug, Default)]
pub(super) struct CutPrompt {
    parts: Vec<CutPart>,
}

/// A part of a prompt.
#[derive(Debug)]
enum CutPart {
    Special(TokenId),
    /// Text between special tokens, never empty; tokenized whole.
    Stretch(After, Filled),
}

impl CutPrompt {
    /// Adds a special token that raw prompts start with: to the text behind it, it is nothing.
    pub(super) fn push_start(&mut self, token: TokenId) {
        self.parts.push(CutPart::Special(token));
    }

    /// Adds text of a template, cut into special tokens and what is between them.
    pub(super) fn push_markup(&mut self, parts: &[MarkupPart]) {
        for part in parts {
            match part {
                MarkupPart::Special(token) => self.parts.push(CutPart::Special(*token)),
                MarkupPart::Text(text) => self.stretch(After::Special).push(SpanKind::Template, text),
            }
        }
    }

    /// The stretch at the end, to add to; a new one stands behind a special token where one is there, and
    /// `after` that is none of the prompt's start.
    pub(super) fn stretch(&mut self, after: After) -> &mut Filled {
        if !matches!(self.parts.last(), Some(CutPart::Stretch(..))) {
            let after = if self.parts.is_empty() { After::Nothing } else { after };
            self.parts.push(CutPart::Stretch(after, Filled::default()));
        }
        match self.parts.last_mut() {
            Some(CutPart::Stretch(_, filled)) => filled,
            _ => unreachable!("a stretch was just pushed where there was none"),
        }
    }

    /// The texts of its stretches.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.stretches().map(|(_, filled)| filled.text.as_str())
    }

    fn stretches(&self) -> impl Iterator<Item = (After, &Filled)> {
        self.parts.iter().filter_map(|part| match part {
            CutPart::Stretch(after, filled) => Some((*after, filled)),
            CutPart::Special(_) => None,
        })
    }
}

/// The tokens of prompts, and which of them came out of cells.
pub(super) fn encode(tokenizer: &dyn Tokenizer, prompts: &[CutPrompt]) -> Vec<(Vec<TokenId>, Spans)> {
    let stretches: Vec<Vec<(After, &Filled)>> =
        prompts.iter().map(|prompt| prompt.stretches().collect()).collect();
    let most = stretches.iter().map(Vec::len).max().unwrap_or_default();
    let mut tokens: Vec<Vec<Vec<TokenId>>> = vec![Vec::new(); prompts.len()];
    for at in 0..most {
        // Where prompts differ in their markup, their stretches of one number may stand behind different things.
        for after in [After::Nothing, After::Special] {
            let of = |row: &usize| stretches[*row].get(at).filter(|(behind, _)| *behind == after);
            let rows: Vec<usize> = (0..prompts.len()).filter(|row| of(row).is_some()).collect();
            let texts: Vec<&str> = rows.iter().filter_map(of).map(|(_, filled)| &*filled.text).collect();
            for (row, encoded) in rows.into_iter().zip(encode_alike(tokenizer, after, &texts)) {
                tokens[row].push(encoded);
            }
        }
    }
    let mut outer = OuterTokens { tokenizer, heads: BTreeMap::new(), tails: BTreeMap::new() };
    prompts.iter().zip(tokens).map(|(prompt, tokens)| outer.whole(prompt, tokens)).collect()
}

/// Tokens of stretches, most often alike at their beginnings.
fn encode_alike(tokenizer: &dyn Tokenizer, after: After, texts: &[&str]) -> Vec<Vec<TokenId>> {
    let Some((first, others)) = texts.split_first() else { return Vec::new() };
    let mut head = *first;
    for text in others {
        head = &head[..common(head, text)];
    }
    if texts.iter().all(|text| text.len() == head.len()) {
        return vec![tokenizer.encode_stretch(after, head); texts.len()];
    }
    tokenizer.encode_stretches(after, head, texts)
}

/// Bytes that two texts have in common at their beginnings, in whole characters.
fn common(one: &str, other: &str) -> usize {
    let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    one.floor_char_boundary(same)
}

/// Tokens of the texts around fields, which rows have in common.
struct OuterTokens<'a> {
    tokenizer: &'a dyn Tokenizer,
    heads: BTreeMap<(bool, String), Vec<TokenId>>,
    tails: BTreeMap<String, Vec<TokenId>>,
}

impl OuterTokens<'_> {
    /// A prompt's tokens and spans, out of the tokens of its stretches.
    fn whole(&mut self, prompt: &CutPrompt, stretches: Vec<Vec<TokenId>>) -> (Vec<TokenId>, Spans) {
        let (mut tokens, mut spans) = (Vec::new(), Spans::default());
        let mut stretches = stretches.into_iter();
        for part in &prompt.parts {
            match part {
                CutPart::Special(token) => {
                    tokens.push(*token);
                    spans.push(SpanKind::Template, 1);
                }
                CutPart::Stretch(after, filled) => {
                    let encoded = stretches.next().unwrap_or_default();
                    self.spans(*after, filled, &encoded, &mut spans);
                    tokens.extend(encoded);
                }
            }
        }
        (tokens, spans)
    }

    fn spans(&mut self, after: After, filled: &Filled, tokens: &[TokenId], spans: &mut Spans) {
        let Self { tokenizer, heads, tails } = self;
        let (head, tail) = filled.outer();
        let is_start = after == After::Nothing;
        let head =
            heads.entry((is_start, head.to_owned())).or_insert_with(|| tokenizer.encode_stretch(after, head));
        let tail = tails.entry(tail.to_owned()).or_insert_with(|| tokenizer.encode_data(tail));
        filled.spans(tokens, head, tail, spans);
    }
}
