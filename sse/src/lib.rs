//! Server-sent events out of a byte stream, however its bytes are cut. `eventsource-stream` reads the format;
//! this module gives it whole lines, because it would hold a line without an end, and all that follows a byte
//! that is no UTF-8, in memory without a limit. It must not know what events mean.

pub use eventsource_stream::Event;
use eventsource_stream::{EventStreamError, Eventsource as _};
use futures_util::{FutureExt as _, Stream, StreamExt as _, TryStreamExt as _, stream};

/// Longest line taken, in bytes; a longer one breaks the stream.
const LINE_BYTES_MAX: usize = 16 << 20;

/// The events of `pieces`, whose errors are passed on as they are.
pub fn events<B: AsRef<[u8]>>(
    pieces: impl Stream<Item = Result<B, String>>,
) -> impl Stream<Item = Result<Event, String>> {
    let mut held = Vec::new();
    let lines = pieces.map(move |piece| whole_lines(&mut held, piece?.as_ref()));
    // The library panics where a stream begins with a byte order mark: before it, a comment stands.
    let commented = stream::iter([Ok(":\n".to_owned())]).chain(lines);
    commented.eventsource().map_err(|error| match error {
        EventStreamError::Transport(reason) => reason,
        other => other.to_string(),
    })
}

/// All events of a text.
pub fn events_of(text: &str) -> Result<Vec<Event>, String> {
    let events = events(stream::iter([Ok(text)])).try_collect();
    events.now_or_never().expect("a text is all there: nothing is waited for")
}

/// The lines that `piece` completes; what has no end yet is held.
fn whole_lines(held: &mut Vec<u8>, piece: &[u8]) -> Result<String, String> {
    let end = piece.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (complete, rest) = piece.split_at(end);
    let mut lines = Vec::new();
    if !complete.is_empty() {
        lines = std::mem::take(held);
        lines.extend_from_slice(complete);
    }
    held.extend_from_slice(rest);
    if held.len() > LINE_BYTES_MAX {
        return Err(format!("a line of the event stream is longer than {LINE_BYTES_MAX} bytes"));
    }
    Ok(String::from_utf8_lossy(&lines).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and data of the events of bytes that arrive `size` at a time.
    fn cut(bytes: &[u8], size: usize) -> Vec<(String, String)> {
        let events =
            events(stream::iter(bytes.chunks(size).map(Ok))).map_ok(|event| (event.event, event.data));
        let events: Result<Vec<_>, String> = events.try_collect().now_or_never().expect("all is there");
        events.expect("short lines")
    }

    #[test]
    fn events_come_out_the_same_however_the_bytes_are_cut() {
        let stream = ": hi\n\nevent: row\r\ndata: {\"text\":\"é\"}\r\n\r\ndata: a\ndata:b\nid: 3\n\nevent: x\n\ndata: z";
        let expected =
            [("row", "{\"text\":\"é\"}"), ("message", "a\nb")].map(|(name, data)| (name.into(), data.into()));
        for size in [1, 2, 3, 7, stream.len()] {
            assert_eq!(cut(stream.as_bytes(), size), expected, "cut into {size}");
        }
    }

    #[test]
    fn comments_marks_and_bytes_that_are_no_text_break_nothing() {
        let stream = b"\xef\xbb\xbf: mark\n: keep-alive\r\n\r\n: another\ndata: a\n: inside\ndata: \xff\n\ndata: c\n\n";
        let expected = ["a\n\u{fffd}", "c"].map(|data| ("message".to_owned(), data.to_owned()));
        for size in [1, 4, stream.len()] {
            assert_eq!(cut(stream, size), expected, "cut into {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let megabyte = "x".repeat(1 << 20);
        let pieces = std::iter::repeat_n(&megabyte, 40).map(Ok);
        let events =
            events(stream::iter(pieces)).try_collect::<Vec<_>>().now_or_never().expect("all is there");
        assert!(events.is_err_and(|reason| reason.contains("longer than 16777216 bytes")));
    }
}
