//! What a body's top level says of its deadline, read while it arrives: a slow body is given up when its
//! deadline passes, not when it is whole.
//!
//! No parser: strings and brackets are followed, nothing is checked. A field that it misses (an escape in a
//! name) is found when the whole body is read; one that makes no sense is refused then. Must not know the
//! fields of any route.

use base::{Millis, Time};
use serving::clock::Deadline;

/// Longest name or value that is of interest, quotes included.
const WORD_BYTES_MAX: usize = 32;

/// Follows a body whose request's head was read at an instant.
#[derive(Clone, Debug)]
pub struct Peek {
    arrival: Time,
    depth: u32,
    is_string: bool,
    is_escaped: bool,
    /// The top level's present name or value, in quotes where it is a string.
    word: Vec<u8>,
    name: Vec<u8>,
    deadline: Option<Deadline>,
    stream: bool,
}

impl Peek {
    /// Nothing of the body has arrived yet.
    pub fn new(arrival: Time) -> Self {
        Self {
            arrival,
            depth: 0,
            is_string: false,
            is_escaped: false,
            word: Vec::new(),
            name: Vec::new(),
            deadline: None,
            stream: false,
        }
    }

    /// When the request's head was read.
    pub fn arrival(&self) -> Time {
        self.arrival
    }

    /// The deadline, where the body has named it by now.
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// Whether the body has asked for events by now.
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    /// More of the body.
    pub fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.is_string {
                self.take_in_string(*byte);
            } else {
                self.take_outside(*byte);
            }
        }
    }

    fn take_in_string(&mut self, byte: u8) {
        self.keep(byte);
        if std::mem::take(&mut self.is_escaped) {
            return;
        }
        self.is_escaped = byte == b'\\';
        self.is_string = byte != b'"';
    }

    fn take_outside(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.is_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_value(),
            b':' if self.depth == 1 => self.name = std::mem::take(&mut self.word),
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.word.len() <= WORD_BYTES_MAX {
            self.word.push(byte);
        }
    }

    fn end_value(&mut self) {
        if self.depth != 1 {
            return;
        }
        match self.name.as_slice() {
            b"\"deadline_ms\"" => {
                let span = std::str::from_utf8(&self.word).ok().and_then(|word| word.parse().ok());
                self.deadline = span.filter(|ms| *ms > 0).map(|ms| Deadline::new(self.arrival, Millis(ms)));
            }
            b"\"stream\"" => self.stream = self.word == b"true",
            _ => {}
        }
        self.name.clear();
        self.word.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known after a body, in one piece and byte by byte.
    fn check(body: &str, deadline: Option<u64>, stream: bool) {
        let mut whole = Peek::new(Time(7));
        whole.take(body.as_bytes());
        let mut drop_by_drop = Peek::new(Time(7));
        body.as_bytes().iter().for_each(|byte| drop_by_drop.take(&[*byte]));
        for peek in [whole, drop_by_drop] {
            assert_eq!(peek.deadline(), deadline.map(|ms| Deadline::new(Time(7), Millis(ms))), "{body}");
            assert_eq!(peek.is_stream(), stream, "{body}");
        }
    }

    #[test]
    fn a_deadline_is_known_as_soon_as_its_number_has_ended() {
        check(r#"{"deadline_ms": 30, "rows": [["a"#, Some(30), false);
        check(r#"{"rows": [["a"]], "deadline_ms" :30}"#, Some(30), false);
        check(r#"{"deadline_ms": 30"#, None, false);
        check(r#"{"stream": true, "deadline_ms": 1, "#, Some(1), true);
        check(r#"{"deadline_ms": 5, "deadline_ms": 9, "#, Some(9), false);
    }

    #[test]
    fn only_the_top_level_counts_and_what_makes_no_sense_is_left_to_the_reader() {
        check(r#"{"rows": [{"deadline_ms": 3, "stream": true}], "x": "deadline_ms"}"#, None, false);
        check(r#"{"template": "\\\"deadline_ms\\\": 3, {[", "stream": true}"#, None, true);
        check(r#"{"template": "a \\", "deadline_ms": 4}"#, Some(4), false);
        for bad in ["\"30\"", "0", "-3", "1e3", "null", "99999999999999999999999", "[5]"] {
            check(&format!("{{\"deadline_ms\": {bad}, \"x\": 1}}"), None, false);
        }
        check("]]}}{{\"\\", None, false);
    }
}
