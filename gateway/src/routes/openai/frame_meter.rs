//! Follows the frames of a WebSocket by their heads, before their bytes are kept: what reads the frames tests how long one
//! is when it has all of it.

/// Bytes of what a control frame may say (RFC 6455, section 5.5).
const CONTROL_BYTES_MAX: u64 = 125;

/// Why no more is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameFault {
    /// A message has more bytes than this.
    Message(u64),
    /// A control frame is too long.
    Control,
}

/// Where in its frames a connection is.
#[derive(Debug, Default)]
pub(super) struct FrameMeter {
    /// The head of the next frame, as far as it has come.
    head: Vec<u8>,
    /// Bytes of the frame that are to come behind its head.
    left: u64,
    is_control: bool,
    is_final: bool,
    /// Bytes of the message so far, with all of its last frame.
    message: u64,
    /// Whether frames of the message have ended, and not the last.
    is_open: bool,
    /// Messages that are whole.
    pub(super) messages: u64,
    /// Bytes that have come of a frame that is not whole.
    pub(super) unfinished: u64,
}

/// The head of a frame.
struct FrameHead {
    is_final: bool,
    is_control: bool,
    bytes: u64,
}

impl FrameHead {
    /// Reads one, once all of it is there.
    fn read(head: &[u8]) -> Option<Self> {
        let (first, second) = (*head.first()?, *head.get(1)?);
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        let (length, bytes) = match second & 0x7f {
            126 => (4, u64::from(u16::from_be_bytes(head.get(2..4)?.try_into().ok()?))),
            127 => (10, u64::from_be_bytes(head.get(2..10)?.try_into().ok()?)),
            bytes => (2, u64::from(bytes)),
        };
        let whole = Self { is_final: first & 0x80 != 0, is_control: is_control(first), bytes };
        (head.len() >= length + mask).then_some(whole)
    }
}

fn is_control(first: u8) -> bool {
    first & 0x08 != 0
}

impl FrameMeter {
    /// Follows what has come; `max`: bytes of a message.
    pub(super) fn follow(&mut self, mut bytes: &[u8], max: u64) -> Result<(), FrameFault> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let count = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                bytes = &bytes[count..];
                self.left -= count as u64;
                self.unfinished += count as u64;
            } else {
                bytes = rest;
                self.head.push(*first);
                self.unfinished += 1;
                let Some(head) = FrameHead::read(&self.head) else { continue };
                self.head.clear();
                self.begin(&head, max)?;
            }
            if self.left == 0 {
                self.end();
            }
        }
        Ok(())
    }

    fn begin(&mut self, head: &FrameHead, max: u64) -> Result<(), FrameFault> {
        (self.is_control, self.is_final) = (head.is_control, head.is_final);
        if head.is_control {
            if head.bytes > CONTROL_BYTES_MAX {
                return Err(FrameFault::Control);
            }
        } else {
            self.message = self.message.saturating_add(head.bytes);
            if self.message > max {
                return Err(FrameFault::Message(max));
            }
        }
        self.left = head.bytes;
        Ok(())
    }

    fn end(&mut self) {
        self.unfinished = 0;
        if self.is_control {
            return;
        }
        self.is_open = !self.is_final;
        if self.is_final {
            self.message = 0;
            self.messages += 1;
        }
    }

    /// Whether a message has begun that is not whole.
    pub(super) fn is_in_message(&self) -> bool {
        let is_in_head = self.head.first().is_some_and(|first| !is_control(*first));
        self.is_open || is_in_head || self.left > 0 && !self.is_control
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u8 = 0x81;
    const FIRST: u8 = 0x01;
    const NEXT: u8 = 0x00;
    const LAST: u8 = 0x80;
    const PING: u8 = 0x89;

    /// A masked frame whose head says this length.
    fn frame(first: u8, declared: u64, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first];
        match declared {
            0..126 => frame.push(0x80 | declared as u8),
            126..65_536 => {
                frame.push(0x80 | 126);
                frame.extend((declared as u16).to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend(declared.to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        frame
    }

    fn whole(first: u8, bytes: usize) -> Vec<u8> {
        frame(first, bytes as u64, &vec![b'x'; bytes])
    }

    #[test]
    fn messages_are_followed_however_their_bytes_come() {
        let all = [
            whole(TEXT, 0),
            whole(TEXT, 125),
            whole(FIRST, 300),
            whole(PING, 125),
            whole(NEXT, 0),
            whole(NEXT, 200),
            whole(LAST, 500),
            whole(TEXT, 1_000),
        ];
        let all = all.concat();
        for size in [1, 2, 3, 7, 100, all.len()] {
            let mut meter = FrameMeter::default();
            for piece in all.chunks(size) {
                assert_eq!(meter.follow(piece, 1_000), Ok(()), "by {size}");
            }
            assert_eq!((meter.messages, meter.unfinished, meter.is_in_message()), (4, 0, false));
        }
        let mut meter = FrameMeter::default();
        let first = whole(FIRST, 300);
        assert_eq!((meter.follow(&first[..100], 1_000), meter.unfinished), (Ok(()), 100));
        assert!(meter.is_in_message());
        assert_eq!((meter.follow(&first[100..], 1_000), meter.unfinished), (Ok(()), 0));
        assert!(meter.is_in_message(), "its last frame is still to come");
        assert_eq!(meter.follow(&whole(PING, 3), 1_000), Ok(()));
        assert!(meter.is_in_message() && meter.messages == 0);
    }

    #[test]
    fn what_is_too_long_is_known_by_its_head() {
        for declared in [1_001, 70_000, 1 << 40, u64::MAX] {
            let mut meter = FrameMeter::default();
            let head = frame(TEXT, declared, b"");
            let (last, before) = head.split_last().expect("a head");
            assert_eq!(meter.follow(before, 1_000), Ok(()));
            assert_eq!(meter.follow(&[*last], 1_000), Err(FrameFault::Message(1_000)));
        }
        let mut meter = FrameMeter::default();
        assert_eq!(meter.follow(&[whole(FIRST, 600), whole(PING, 9)].concat(), 1_000), Ok(()));
        assert_eq!(meter.follow(&frame(NEXT, 401, b""), 1_000), Err(FrameFault::Message(1_000)));
        let mut meter = FrameMeter::default();
        assert_eq!(meter.follow(&frame(PING, 126, b""), 1_000), Err(FrameFault::Control));
    }
}
