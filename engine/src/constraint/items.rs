//! Items one behind the other, no two alike: tags out of a list, and lists of any texts.

use base::Items;

use super::follow::Automaton;

/// Items that may be used up: their marks are bits.
pub(super) const TEXTS_MAX: usize = 128;

/// Items and their separator, as bytes.
#[derive(Clone, Debug)]
pub(super) struct ItemList {
    /// The only ones there are; any others where there are none.
    texts: Vec<Vec<u8>>,
    is_listed: bool,
    separator: Vec<u8>,
    /// Fewest and most.
    count: (u32, u32),
    chars_max: u32,
}

/// Where a list stands; two such places where an item holds what might be a separator.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListPosition {
    /// Where the item begins.
    start: u32,
    /// Bytes of the separator behind it.
    separated: u8,
    /// Items before it.
    count: u32,
    /// Those of the list that are used up.
    used: u128,
}

impl ItemList {
    pub(super) fn new(items: &Items) -> Self {
        let texts: Vec<Vec<u8>> =
            items.texts.iter().flatten().map(|text| text.clone().into_bytes()).take(TEXTS_MAX).collect();
        let is_listed = items.texts.is_some();
        let most = if is_listed { items.count_max.min(texts.len() as u32) } else { items.count_max };
        let separator = items.separator.clone().into_bytes();
        Self {
            texts,
            is_listed,
            separator,
            count: (items.count_min.min(most), most),
            chars_max: items.chars_max,
        }
    }

    /// The item at hand, if it may end here: what is used up with it.
    fn complete(&self, place: &ListPosition, written: &[u8]) -> Option<u128> {
        let item = &written[place.start as usize..];
        if self.is_listed {
            let number = self.unused(place).find(|number| self.texts[*number] == item)?;
            return Some(place.used | (1 << number));
        }
        let is_new = || {
            let earlier = &written[..place.start as usize];
            let mut others = split(earlier, &self.separator);
            others.all(|other| !alike(other, item))
        };
        let is_text =
            item.last().is_some_and(|last| *last != b' ') && missing(item) == 0 && !bare(item).is_empty();
        (is_text && is_new()).then_some(place.used)
    }

    fn unused(&self, place: &ListPosition) -> impl Iterator<Item = usize> {
        let used = place.used;
        (0..self.texts.len()).filter(move |number| used & (1 << number) == 0)
    }

    /// Whether the item at hand may go on with a byte.
    fn goes_on(&self, place: &ListPosition, written: &[u8], byte: u8) -> bool {
        let item = &written[place.start as usize..];
        if self.is_listed {
            let begins =
                |text: &[u8]| text.strip_prefix(item).is_some_and(|rest| rest.first() == Some(&byte));
            return self.unused(place).any(|number| begins(&self.texts[number]));
        }
        let is_first = |byte: &u8| byte & 0xc0 != 0x80;
        let room = item.iter().filter(|byte| is_first(byte)).count() < self.chars_max as usize;
        // One that may not end yet, being like another, goes on: else nothing could follow.
        let goes_on = room || self.complete(place, written).is_none();
        let last = item.last().copied();
        match (byte, missing(item)) {
            (0x80..=0xbf, missing) => missing > 0,
            (_, 1..) | (0x00..b' ' | 0x7f | 0xc0 | 0xc1 | 0xf5.., _) => false,
            _ if Some(&byte) == self.separator.first() => false,
            (b' ', _) => room && last.is_some_and(|last| last != b' '),
            _ => goes_on,
        }
    }

    fn place_after(&self, place: &ListPosition, written: &[u8], byte: u8) -> [Option<ListPosition>; 2] {
        let next = written.len() as u32 + 1;
        let separated = |place: &ListPosition, bytes: u8| match usize::from(bytes) == self.separator.len() {
            true => ListPosition { start: next, separated: 0, count: place.count + 1, used: place.used },
            false => ListPosition { separated: bytes, ..*place },
        };
        if place.separated > 0 {
            let is_next = self.separator[usize::from(place.separated)] == byte;
            return [is_next.then(|| separated(place, place.separated + 1)), None];
        }
        let goes_on = self.goes_on(place, written, byte).then_some(*place);
        let has_more = place.count + 1 < self.count.1;
        let ends = (has_more && self.separator.first() == Some(&byte))
            .then(|| self.complete(place, written))
            .flatten()
            .map(|used| separated(&ListPosition { used, ..*place }, 1));
        [goes_on, ends]
    }
}

impl Automaton for ItemList {
    type State = [Option<ListPosition>; 2];

    fn start(&self, skipped: usize) -> Self::State {
        [Some(ListPosition { start: skipped as u32, ..ListPosition::default() }), None]
    }

    fn step(&self, state: &Self::State, written: &[u8], byte: u8) -> Option<Self::State> {
        let mut next =
            state.iter().flatten().flat_map(|place| self.place_after(place, written, byte)).flatten();
        let first = next.next()?;
        Some([Some(first), next.next()])
    }

    fn can_end(&self, state: &Self::State, written: &[u8]) -> bool {
        let ends = |place: &ListPosition| {
            place.separated == 0 && place.count + 1 >= self.count.0 && self.complete(place, written).is_some()
        };
        state.iter().flatten().any(ends)
    }
}

/// Items before a separator each.
fn split<'a>(written: &'a [u8], separator: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = written;
    std::iter::from_fn(move || {
        let at = rest.windows(separator.len()).position(|window| window == separator)?;
        let item = &rest[..at];
        rest = &rest[at + separator.len()..];
        Some(item)
    })
}

/// Bytes that the last character of a text still wants.
fn missing(text: &[u8]) -> usize {
    let following = text.iter().rev().take_while(|byte| **byte & 0xc0 == 0x80).count();
    let first = text.len().checked_sub(following + 1).map_or(0, |at| text[at]);
    let length: usize = match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0.. => 4,
        _ => 1,
    };
    length.saturating_sub(following + 1)
}

/// An item without a number or bullet in front, and without punctuation behind.
fn bare(item: &[u8]) -> &[u8] {
    let behind = item.iter().rev().take_while(|byte| b".,;:!?".contains(byte)).count();
    let item = &item[..item.len() - behind];
    let end = item.iter().position(|byte| !b"0123456789.)-* ".contains(byte)).unwrap_or(item.len());
    // Numbers are items too.
    match item[end..].is_empty() && item.iter().any(u8::is_ascii_digit) {
        true => item,
        false => &item[end..],
    }
}

fn alike(one: &[u8], other: &[u8]) -> bool {
    bare(one).eq_ignore_ascii_case(bare(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(items: &Items, answer: &str) -> bool {
        let list = ItemList::new(items);
        let mut state = list.start(0);
        for (at, byte) in answer.bytes().enumerate() {
            let Some(next) = list.step(&state, &answer.as_bytes()[..at], byte) else { return false };
            state = next;
        }
        list.can_end(&state, answer.as_bytes())
    }

    #[track_caller]
    fn check(items: &Items, good: &[&str], bad: &[&str]) {
        good.iter().for_each(|answer| assert!(takes(items, answer), "{answer:?}"));
        bad.iter().for_each(|answer| assert!(!takes(items, answer), "{answer:?}"));
    }

    #[test]
    fn tags_come_out_of_the_list_in_any_order_and_once() {
        let texts = ["food", "food, drink", "price"].map(str::to_owned).to_vec();
        let tags =
            Items { texts: Some(texts), separator: ", ".into(), count_min: 1, count_max: 9, chars_max: 0 };
        check(
            &tags,
            &["food", "price, food", "food, price", "food, drink", "food, drink, food", "food, drink, price"],
            &["", "foo", "food,", "food, ", "food, food", "price, price", "drink", "food,price", "Food"],
        );
        let two = Items { count_min: 2, count_max: 2, ..tags };
        check(&two, &["price, food"], &["price", "price, food, food, drink"]);
    }

    #[test]
    fn a_list_has_as_many_different_lines_as_are_asked_for() {
        let lines = Items { texts: None, separator: "\n".into(), count_min: 3, count_max: 3, chars_max: 8 };
        check(
            &lines,
            &["a\nb\nc", "1. a\n2. b\n3. c", "red wine\nb c\n\u{e9}t\u{e9}", "1\n2\n3"],
            &[
                "a\nb",
                "a\nb\nc\nd",
                "a\nA\nb",
                "1. a\n2. a\n3. b",
                "a\n\nb",
                "a \nb\nc",
                "a\n b\nc",
                "123456789\nb\nc",
            ],
        );
    }
}
