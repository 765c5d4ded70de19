//! Stretches of a text: an answer that is copied, whole words at a time.

use super::follow::Automaton;

/// Stands behind a text: no byte of an answer is this.
const WALL: u16 = 256;

/// The texts that an answer may be copied from.
#[derive(Clone, Debug)]
pub(super) struct Excerpt {
    /// Their bytes, each with a wall behind it.
    bytes: Vec<u16>,
    /// Where a stretch may begin, ascending.
    starts: Vec<u32>,
    /// Whether it may end before each byte.
    ends: Vec<bool>,
}

impl Excerpt {
    /// Stretches of `text`, or the whole of `otherwise`.
    pub(super) fn new(text: &str, otherwise: Option<&str>) -> Self {
        let mut excerpt = Self { bytes: Vec::new(), starts: Vec::new(), ends: Vec::new() };
        // White space at the end would lead nowhere.
        let text = text.trim_end();
        let mut before: Option<char> = None;
        for (at, character) in text.char_indices() {
            if !character.is_whitespace() && !before.is_some_and(|before| are_joined(before, character)) {
                excerpt.starts.push(at as u32);
            }
            let can_end =
                before.is_some_and(|before| !before.is_whitespace() && !are_joined(before, character));
            excerpt.ends.push(can_end);
            excerpt.ends.resize(at + character.len_utf8(), false);
            before = Some(character);
        }
        excerpt.bytes.extend(text.bytes().map(u16::from));
        excerpt.close(before.is_some());
        if let Some(otherwise) = otherwise {
            excerpt.starts.push(excerpt.bytes.len() as u32);
            excerpt.bytes.extend(otherwise.bytes().map(u16::from));
            excerpt.ends.resize(excerpt.bytes.len(), false);
            excerpt.close(true);
        }
        excerpt
    }

    /// Whether there is anything to copy.
    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    fn close(&mut self, can_end: bool) {
        self.bytes.push(WALL);
        self.ends.push(can_end);
    }
}

impl Automaton for Excerpt {
    /// Where in the texts the answer may stand: before these bytes.
    type State = Vec<u32>;

    fn start(&self, _: usize) -> Vec<u32> {
        self.starts.clone()
    }

    fn step(&self, state: &Vec<u32>, _: &[u8], byte: u8) -> Option<Vec<u32>> {
        let is_next = |at: &&u32| self.bytes[**at as usize] == u16::from(byte);
        let next: Vec<u32> = state.iter().filter(is_next).map(|at| at + 1).collect();
        (!next.is_empty()).then_some(next)
    }

    fn can_end(&self, state: &Vec<u32>, written: &[u8]) -> bool {
        !written.is_empty() && state.iter().any(|at| self.ends[*at as usize])
    }
}

/// Whether no word ends between two characters. Scripts without spaces between words have no words here: any
/// of their characters may begin or end a stretch.
fn are_joined(one: char, other: char) -> bool {
    let is_of_word = |character: char| character.is_alphanumeric() && !is_unspaced(character);
    is_of_word(one) && is_of_word(other)
}

/// Thai to Burmese and Khmer, and from the first of the East Asian blocks to the last.
fn is_unspaced(character: char) -> bool {
    matches!(character, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{2e80}'..='\u{a4cf}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an answer may be written, and may end there.
    fn takes(excerpt: &Excerpt, answer: &str) -> bool {
        let mut state = excerpt.start(0);
        for (at, byte) in answer.bytes().enumerate() {
            let Some(next) = excerpt.step(&state, &answer.as_bytes()[..at], byte) else { return false };
            state = next;
        }
        excerpt.can_end(&state, answer.as_bytes())
    }

    #[test]
    fn an_answer_is_whole_words_of_the_text_or_what_stands_for_nothing() {
        let excerpt = Excerpt::new(" Call Mar\u{ed}a at 555-0142, or none-such.", Some("none"));
        for good in
            ["Call", "Mar\u{ed}a", "Mar\u{ed}a at 555-0142", "555-0142,", "0142", "none", "none-such."]
        {
            assert!(takes(&excerpt, good), "{good}");
        }
        for bad in ["", "all", "Mar", "Mar\u{ed}", "Call ", " Call", "Maria", "call", "none-such.none", "non"]
        {
            assert!(!takes(&excerpt, bad), "{bad}");
        }
        assert!(!takes(&Excerpt::new("a b", None), "none"));
        assert!(takes(&Excerpt::new("a b \n", None), "b") && !takes(&Excerpt::new("a b \n", None), "b "));
        assert!(Excerpt::new(" \n", None).is_empty() && !Excerpt::new("", Some("none")).is_empty());
    }

    #[test]
    fn scripts_without_spaces_are_cut_anywhere() {
        let excerpt = Excerpt::new("\u{6771}\u{4eac}\u{90fd}\u{306b}\u{4f4f}\u{3080}", None);
        assert!(takes(&excerpt, "\u{4eac}\u{90fd}"));
        assert!(!takes(&excerpt, "\u{90fd}\u{4eac}"));
    }
}
