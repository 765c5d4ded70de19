//! Marks in the contents of a conversation, by which they are found again in what a template made of them.
//!
//! A mark is a private character that stands in no text at hand, so that taking the marks out of a text is
//! exact. It is neither white space nor a letter: templates that trim, or change case, do not mind it.

use base::RenderedPiece;

use super::python::is_space;

/// Where private characters are: Unicode's plane 15.
const FIRST_BLOCK: u32 = 0xF_0000;
/// Blocks of them to choose from.
const BLOCKS: usize = 1_024;
/// Characters of a block: 16 digits, the beginning of a content and its end, and one for each character that a
/// special token begins with.
const BLOCK: u32 = 64;
const OPEN: u32 = 16;
const CLOSE: u32 = 17;
const HIDDEN: u32 = 18;
/// Digits of a message's number.
const DIGITS: u32 = 8;

/// What is marked in a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// Where it begins and where it ends, white space at its ends left outside: trimmed or not, what is inside
    /// is the content's.
    Borders,
    /// The first characters of these special tokens, where they are written in it; numbers of
    /// [`Marks::names_in`].
    Hidden(Vec<usize>),
}

/// Private characters that some texts do not hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks<'a> {
    /// The first of its block.
    first: u32,
    /// How special tokens are written.
    names: &'a [String],
}

impl<'a> Marks<'a> {
    /// Marks that stand in none of the texts.
    pub(super) fn absent_from<'t>(texts: impl Iterator<Item = &'t str>, names: &'a [String]) -> Option<Self> {
        let mut is_taken = [false; BLOCKS];
        // In UTF-8 all of plane 15 begins with this byte, and few texts hold it.
        for text in texts.filter(|text| text.as_bytes().contains(&0xF3)) {
            let codes = text.chars().filter_map(|character| u32::from(character).checked_sub(FIRST_BLOCK));
            codes.for_each(|code| {
                if let Some(is_taken) = is_taken.get_mut((code / BLOCK) as usize) {
                    *is_taken = true;
                }
            });
        }
        let free = is_taken.iter().position(|is_taken| !is_taken)?;
        Some(Self { first: FIRST_BLOCK + free as u32 * BLOCK, names })
    }

    fn character(self, number: u32) -> char {
        char::from_u32(self.first + number).expect("plane 15 holds characters alone")
    }

    /// A mark that stands for a whole content.
    pub(super) fn whole(self) -> char {
        self.character(OPEN)
    }

    /// A mark's number, where the character is one.
    fn number(self, character: char) -> Option<u32> {
        u32::from(character).checked_sub(self.first).filter(|number| *number < BLOCK)
    }

    /// Special tokens that are written in a content and can be hidden.
    pub(super) fn names_in(self, content: &str) -> Vec<usize> {
        let is_in = |name: &String| !name.trim().is_empty() && content.contains(name.as_str());
        self.names.iter().enumerate().filter(|(_, name)| is_in(name)).map(|(number, _)| number).collect()
    }

    /// The content of message `i`, marked.
    pub(super) fn mark(self, content: &str, i: usize, guard: &Guard) -> String {
        match guard {
            Guard::Borders => {
                let inner = content.trim_matches(is_space);
                if inner.is_empty() {
                    return content.to_owned(); // nothing to find, and templates may ask whether it is empty
                }
                let before = content.len() - content.trim_start_matches(is_space).len();
                let digit = |place: u32| self.character((i as u32 >> (4 * place)) % 16);
                let number: String = (0..DIGITS).map(digit).collect();
                let (open, close) = (self.character(OPEN), self.character(CLOSE));
                let (lead, trail) = (&content[..before], &content[before + inner.len()..]);
                format!("{lead}{open}{number}{inner}{close}{number}{trail}")
            }
            Guard::Hidden(names) => names.iter().fold(content.to_owned(), |content, name| {
                let name = &self.names[*name];
                let mut rest = name.chars();
                let stand_in = rest.next().and_then(|first| self.stand_in(first));
                match stand_in {
                    Some(stand_in) => content.replace(name, &format!("{stand_in}{}", rest.as_str())),
                    None => content,
                }
            }),
        }
    }

    /// What hides a character that a special token begins with.
    fn stand_in(self, first: char) -> Option<char> {
        let number = self.firsts().iter().position(|other| *other == first)?;
        Some(self.character(HIDDEN + u32::try_from(number).ok()?))
    }

    /// Characters that special tokens begin with, as many as can be hidden.
    fn firsts(self) -> Vec<char> {
        let mut firsts = Vec::new();
        for first in self.names.iter().filter_map(|name| name.chars().next()) {
            if firsts.len() < (BLOCK - HIDDEN) as usize && !firsts.contains(&first) {
                firsts.push(first);
            }
        }
        firsts
    }

    /// The pieces of a marked text, where it is `plain` but for its marks and they come in pairs. Nothing in a
    /// special token that was hidden is taken for one: its first character is a piece of its own.
    pub(super) fn read(self, marked: &str, plain: &str) -> Option<Vec<RenderedPiece>> {
        let mut reader = Reader { pieces: Vec::new(), text: String::new(), open: None };
        let mut whole = String::with_capacity(plain.len());
        let mut characters = marked.chars();
        while let Some(character) = characters.next() {
            match self.number(character) {
                None => {
                    whole.push(character);
                    reader.text.push(character);
                }
                Some(border @ (OPEN | CLOSE)) => {
                    let message = self.message(&mut characters)?;
                    let (before, after) =
                        if border == OPEN { (None, Some(message)) } else { (Some(message), None) };
                    if reader.open != before {
                        return None;
                    }
                    reader.end();
                    reader.open = after;
                }
                Some(number) => {
                    let first = *self.firsts().get(number.checked_sub(HIDDEN)? as usize)?;
                    whole.push(first);
                    reader.end();
                    reader.text.push(first);
                    reader.end();
                }
            }
        }
        reader.end();
        (reader.open.is_none() && whole == plain).then_some(reader.pieces)
    }

    /// The number of a message behind its mark.
    fn message(self, characters: &mut std::str::Chars<'_>) -> Option<usize> {
        (0..DIGITS).try_fold(0, |message, place| {
            let digit = self.number(characters.next()?).filter(|digit| *digit < 16)?;
            Some(message | (digit as usize) << (4 * place))
        })
    }
}

/// A marked text as it is read.
struct Reader {
    pieces: Vec<RenderedPiece>,
    /// The piece at hand.
    text: String,
    /// Whose content it is.
    open: Option<usize>,
}

impl Reader {
    /// Ends the piece at hand.
    fn end(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            self.pieces.push(match self.open {
                Some(message) => RenderedPiece::Content { message, text },
                None => RenderedPiece::Markup(text),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["<a>", "<b>", "[c]", " "].map(str::to_owned).to_vec()
    }

    fn content(message: usize, text: &str) -> RenderedPiece {
        RenderedPiece::Content { message, text: text.to_owned() }
    }

    fn markup(text: &str) -> RenderedPiece {
        RenderedPiece::Markup(text.to_owned())
    }

    #[test]
    fn what_is_between_borders_is_the_contents_and_white_space_around_is_not() {
        let names = names();
        let marks = Marks::absent_from(["x"].into_iter(), &names).expect("there are free ones");
        let [one, other] =
            [(" a<a> ", 3), ("\u{1c}b", 70_000)].map(|(text, i)| marks.mark(text, i, &Guard::Borders));
        let pieces = marks.read(&format!("[{one}]{other}."), "[ a<a> ]\u{1c}b.");
        let expected =
            [markup("[ "), content(3, "a<a>"), markup(" ]\u{1c}"), content(70_000, "b"), markup(".")];
        assert_eq!(pieces.expect("they agree"), expected);
        assert_eq!(marks.mark(" \n", 0, &Guard::Borders), " \n");
        assert_eq!(marks.read(&one, " a<a>"), None, "they say different things");
        let half = &one[..one.len() / 2];
        assert_eq!(marks.read(half, " a"), None, "a content that does not end");
    }

    #[test]
    fn hidden_tokens_are_cut_and_come_back() {
        let names = names();
        let marks = Marks::absent_from(["x"].into_iter(), &names).expect("there are free ones");
        assert_eq!(marks.names_in("a <b>[c] <b>"), [1, 2]);
        let hidden = marks.mark("a <b>[c]<b>", 0, &Guard::Hidden(vec![1, 2]));
        assert!(!hidden.contains("<b>") && !hidden.contains("[c]"));
        let pieces = marks.read(&hidden, "a <b>[c]<b>").expect("they agree");
        let expected = ["a ", "<", "b>", "[", "c]", "<", "b>"].map(markup);
        assert_eq!(pieces, expected);
    }

    #[test]
    fn marks_stand_in_no_text_that_there_is() {
        let names = names();
        let block = |n: u32| char::from_u32(FIRST_BLOCK + n * BLOCK + 5).expect("a character").to_string();
        let texts = [block(0), block(2), format!("a{}", block(1))];
        let marks =
            Marks::absent_from(texts.iter().map(String::as_str), &names).expect("there are free ones");
        assert_eq!(marks.first, FIRST_BLOCK + 3 * BLOCK);
        let all: String = (0..BLOCKS as u32).map(block).collect();
        assert!(Marks::absent_from([&*all].into_iter(), &names).is_none());
    }
}
