//! Server-sent events out of a byte stream. Pure: bytes in, events out, however they are cut.

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its type; `message` where the server names none.
    pub name: String,
    /// Its data lines, joined by newlines.
    pub data: String,
}

/// Longest line taken, in bytes; a longer one breaks the stream.
const LINE_BYTES_MAX: usize = 16 << 20;

/// A line was longer than anything this client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of the event stream is longer than {LINE_BYTES_MAX} bytes")]
pub struct TooLong;

/// What has arrived of an event that is not complete.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    name: String,
    data: Vec<String>,
}

impl Parser {
    /// Takes bytes in and gives the events that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut events = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + part.len() > LINE_BYTES_MAX {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            if self.line.last() == Some(&b'\n') {
                let line = std::mem::take(&mut self.line);
                events.extend(self.end_line(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r'])));
            }
        }
        Ok(events)
    }

    fn end_line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            let data = std::mem::take(&mut self.data);
            if data.is_empty() {
                return None;
            }
            let name = if name.is_empty() { "message".to_owned() } else { name };
            return Some(Event { name, data: data.join("\n") });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push(value.to_owned()),
            // Comments (an empty field: keep-alives), ids and retry hints mean nothing here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_the_same_however_the_bytes_are_cut() {
        let stream = ": hi\n\nevent: row\r\ndata: {\"text\":\"é\"}\r\n\r\ndata: a\ndata:b\nid: 3\n\nevent: x\n\ndata: z";
        let expected = [("row", "{\"text\":\"é\"}"), ("message", "a\nb")]
            .map(|(name, data)| Event { name: name.into(), data: data.into() });
        for size in [1, 2, 3, 7, stream.len()] {
            let mut parser = Parser::default();
            let mut events = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                events.extend(parser.push(piece).expect("short lines"));
            }
            assert_eq!(events, expected, "cut into {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut parser = Parser::default();
        let megabyte = vec![b'x'; 1 << 20];
        let refused = (0..40).find_map(|_| parser.push(&megabyte).err());
        assert_eq!(refused, Some(TooLong));
    }
}
