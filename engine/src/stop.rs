//! Stop strings: text is held back while it could become one, and none is output but where a row asks for that.

/// The text of one output on its way out.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopText {
    held: String,
}

/// What became of text that was pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// Text that is final.
    pub(crate) text: String,
    /// The place of the stop string that followed it, or ends it: what came after is gone.
    pub(crate) stop: Option<u32>,
}

impl StopText {
    /// Adds text and releases what can no longer be part of a stop string; the one that ends it too where it `shows`.
    pub(crate) fn push(&mut self, text: &str, stops: &[String], shows: bool) -> Released {
        self.held.push_str(text);
        let stops = || (0..).zip(stops).filter(|(_, stop)| !stop.is_empty());
        let found = |(place, stop): (u32, &String)| Some((self.held.find(stop.as_str())?, stop.len(), place));
        if let Some((at, length, place)) = stops().filter_map(found).min() {
            self.held.truncate(if shows { at + length } else { at });
            return Released { text: std::mem::take(&mut self.held), stop: Some(place) };
        }
        let longest = stops().map(|(_, stop)| stop.len()).max().unwrap_or(0);
        let earliest = self.held.len().saturating_sub(longest.saturating_sub(1));
        let is_start = |at: &usize| {
            self.held.is_char_boundary(*at) && stops().any(|(_, stop)| stop.starts_with(&self.held[*at..]))
        };
        let hold = (earliest..self.held.len()).find(is_start).unwrap_or(self.held.len());
        let rest = self.held.split_off(hold);
        Released { text: std::mem::replace(&mut self.held, rest), stop: None }
    }

    /// What is still held: the output ends without a stop string.
    pub(crate) fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `pieces` and gives back what each released, and whether it stopped.
    fn feed(pieces: &[&str], stops: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut state = StopText::default();
        let mut texts = Vec::new();
        for piece in pieces {
            let released = state.push(piece, &stops, false);
            texts.push(released.text);
            if released.stop.is_some() {
                return (texts, true);
            }
        }
        texts.push(state.flush());
        (texts, false)
    }

    #[test]
    fn text_is_held_only_while_it_could_become_a_stop_string() {
        let check = |pieces: &[&str], stops: &[&str], texts: &[&str], is_stopped: bool| {
            let expected: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(feed(pieces, stops), (expected, is_stopped), "{pieces:?} {stops:?}");
        };
        check(&["a", "b"], &[], &["a", "b", ""], false);
        check(&["x\n", "\ny"], &["\n\n"], &["x", ""], true);
        check(&["x\n", "y"], &["\n\n"], &["x", "\ny", ""], false);
        check(&["ab", "ac"], &["abd", "c"], &["", "aba"], true);
        check(&["ein ", "En"], &["Ende"], &["ein ", "", "En"], false);
        check(&["é", "é!"], &["é!"], &["", "é"], true);
        check(&["a"], &[""], &["a", ""], false);
    }

    #[test]
    fn the_stop_string_that_ends_a_text_is_shown_where_that_is_asked_for() {
        let stops = ["END".to_owned(), "EN".to_owned()];
        let mut state = StopText::default();
        assert_eq!(state.push("a E", &stops, true).text, "a ");
        let released = state.push("NDless", &stops, true);
        assert_eq!(
            released,
            Released { text: "EN".into(), stop: Some(1) },
            "the shorter of two at one place"
        );
    }

    proptest! {
        #[test]
        fn cuts_do_not_change_what_is_output(text in "[abc]{0,12}", stops in prop::collection::vec("[abc]{1,4}", 0..3), cut in 0..13usize) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let first = stops.iter().filter_map(|stop| text.find(stop)).min();
            let whole = &text[..first.unwrap_or(text.len())];
            let cut = cut.min(text.len());
            // Piece by piece the earliest stop string that is complete first wins, so compare single
            // characters with the same rule: the first prefix of the text that contains a stop string.
            let ends = (0..=text.len()).find(|end| stops.iter().any(|stop| text[..*end].contains(stop)));
            let by_char: Vec<String> = text.chars().map(|c| c.to_string()).collect();
            let (texts, is_stopped) = feed(&by_char.iter().map(String::as_str).collect::<Vec<_>>(), &stops);
            prop_assert_eq!(is_stopped, ends.is_some());
            let at_end = &text[..ends.unwrap_or(text.len())];
            let expected = &at_end[..stops.iter().filter_map(|stop| at_end.find(stop)).min().unwrap_or(at_end.len())];
            prop_assert_eq!(texts.concat(), expected);
            if stops.is_empty() {
                let (texts, _) = feed(&[&text[..cut], &text[cut..]], &stops);
                prop_assert_eq!(texts.concat(), whole);
            }
        }
    }
}
