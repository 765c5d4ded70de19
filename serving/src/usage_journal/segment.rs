//! What a file of the journal says: first which write of usage it holds, then an amount on each line. A line is JSON and its
//! checksum: a loss of power may leave a torn one, which ends the file, and what stands before it counts.

use std::borrow::Cow;
use std::io::{self, Write as _};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A blank and eight hexadecimal digits.
const CHECKSUM_BYTES: usize = 9;

/// Which write of usage a file holds: its first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentHead {
    /// Who counted it, as the store knows it.
    pub writer: String,
    /// The writer's number of it.
    pub number: u64,
    /// The model's name.
    pub model: String,
}

/// What was used by a tenant through a route on a UTC day, counted from 1970-01-01. Amounts; they add up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntry {
    pub tenant: u64,
    pub day: u64,
    pub route: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requests: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prompt: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub computed: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output: u64,
    /// In billionths.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost: u64,
}

/// Serde asks by reference.
fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

/// What a process has left of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftSegment {
    pub head: SegmentHead,
    pub entries: Vec<JournalEntry>,
    /// Whether it ends in a line that is not whole, which is not among them.
    pub is_torn: bool,
}

impl LeftSegment {
    /// Reads a file; `None`: its first line is not whole, so nobody can tell what it holds.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut lines = text.split_inclusive(|byte| *byte == b'\n');
        let head = parse_line(lines.next()?)?;
        let mut left = Self { head, entries: Vec::new(), is_torn: false };
        for line in lines {
            match parse_line(line) {
                Some(entry) => left.entries.push(entry),
                None => {
                    left.is_torn = true;
                    break;
                }
            }
        }
        Some(left)
    }
}

/// Appends a line.
pub(super) fn push_line(text: &mut Vec<u8>, value: &impl Serialize) -> io::Result<()> {
    let from = text.len();
    serde_json::to_writer(&mut *text, value)?;
    let checksum = checksum(&text[from..]);
    writeln!(text, " {checksum:08x}")
}

/// What a line says, where it is whole.
fn parse_line<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let line = line.strip_suffix(b"\n")?;
    let (json, told) = line.split_at(line.len().checked_sub(CHECKSUM_BYTES)?);
    let is_whole = told == format!(" {:08x}", checksum(json)).as_bytes();
    is_whole.then(|| serde_json::from_slice(json).ok()).flatten()
}

/// FNV-1a: against what a crash leaves, not against anybody.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(rows: u64) -> JournalEntry {
        let (requests, prompt, cached, computed, output, cost) = (0, 0, 0, 0, 5, 6);
        let (tenant, day, route) = (1, 20_000, Cow::Borrowed("cells"));
        JournalEntry { tenant, day, route, requests, rows, prompt, cached, computed, output, cost }
    }

    fn head() -> SegmentHead {
        SegmentHead { writer: "a process".into(), number: 7, model: "a \"model\"\nof two lines".into() }
    }

    fn written(entries: &[JournalEntry]) -> Vec<u8> {
        let mut text = Vec::new();
        push_line(&mut text, &head()).unwrap();
        entries.iter().for_each(|entry| push_line(&mut text, entry).unwrap());
        text
    }

    #[test]
    fn what_is_written_is_read_and_a_torn_line_ends_it_wherever_it_is_cut() {
        let entries = [entry(1), entry(2), entry(3)];
        let text = written(&entries);
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 4, "a name's line end is none");
        for length in 0..=text.len() {
            let whole = text[..length].iter().filter(|byte| **byte == b'\n').count();
            let is_torn = length > 0 && text[length - 1] != b'\n';
            let expected = whole.checked_sub(1).map(|count| LeftSegment {
                head: head(),
                entries: entries[..count].to_vec(),
                is_torn,
            });
            assert_eq!(LeftSegment::parse(&text[..length]), expected, "{length} bytes");
        }
    }

    #[test]
    fn nothing_is_read_from_a_line_on_that_is_not_as_it_was_written() {
        let entries = [entry(1), entry(2)];
        let text = written(&entries);
        let last = written(&entries[..1]).len();
        for place in 0..text.len() {
            let mut damaged = text.clone();
            // Blocks that a disk never got are zeros.
            damaged[place] = 0;
            let read = LeftSegment::parse(&damaged).map(|left| (left.entries.len(), left.is_torn));
            let first = written(&[]).len();
            let expected = (place >= first).then_some((usize::from(place >= last), true));
            assert_eq!(read, expected, "byte {place}");
        }
    }
}
