//! How far a job is, for the person at the terminal.

use super::client::RequestTokens;
use super::journal::Counts;
use crate::input::InputSize;
use crate::terminal::{Meter, tell};

/// How far a job is.
pub(super) struct Progress {
    meter: Meter,
    size: InputSize,
    /// Bytes of the input read.
    position: u64,
    /// Rows that were over before.
    before: Counts,
    tokens: RequestTokens,
}

impl Progress {
    /// A job whose input is of this size, of which some rows are over.
    pub(super) fn new(size: InputSize, before: Counts) -> Self {
        Self { meter: Meter::new(), size, position: 0, before, tokens: RequestTokens::default() }
    }

    /// The input is read up to here.
    pub(super) fn position(&mut self, bytes: u64) {
        self.position = bytes;
    }

    /// The input is read, and has so many rows.
    pub(super) fn read(&mut self, rows: u64) {
        self.size = InputSize::Rows(rows);
    }

    /// A request came back.
    pub(super) fn add(&mut self, tokens: RequestTokens) {
        self.tokens.prompt += tokens.prompt;
        self.tokens.cached += tokens.cached;
        self.tokens.output += tokens.output;
    }

    /// Shows where the job stands.
    pub(super) fn show(&mut self, counts: Counts) {
        let (share, seconds) = (self.share(counts), self.meter.seconds());
        let message = self.message(counts, seconds);
        self.meter.show(share, || message);
    }

    /// Says a thing at once.
    pub(super) fn note(&self, text: &str) {
        self.meter.note(text);
    }

    /// Shows where the job has ended.
    pub(super) fn end(&self, counts: Counts) {
        self.meter.end();
        tell!("{}", self.message(counts, self.meter.seconds()));
    }

    /// Which share is over, as far as that can be known.
    fn share(&self, counts: Counts) -> f64 {
        let over = counts.done + counts.failed;
        let (part, whole) = match self.size {
            InputSize::Rows(rows) => (over, rows),
            InputSize::Bytes(bytes) => (self.position, bytes),
        };
        if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
    }

    fn message(&self, counts: Counts, seconds: f64) -> String {
        let seconds = seconds.max(0.001);
        let total = match self.size {
            InputSize::Rows(rows) => format!("/{rows}"),
            InputSize::Bytes(_) => String::new(),
        };
        let RequestTokens { prompt, cached, output } = self.tokens;
        let rate = (prompt + output) as f64 / seconds;
        let hits = if prompt == 0 { 0.0 } else { 100.0 * cached as f64 / prompt as f64 };
        let begun = self.before.done + self.before.failed;
        let over = (counts.done + counts.failed).saturating_sub(begun);
        let (share, rows) = (self.share(counts), over as f64 / seconds);
        let left = match self.size {
            InputSize::Rows(total) if rows > 0.0 => {
                Some(total.saturating_sub(counts.done + counts.failed) as f64 / rows)
            }
            _ if share > 0.0 => Some(seconds * (1.0 - share) / share),
            _ => None,
        };
        let left = left.map_or(String::new(), |left| format!(", {} left", span(left)));
        format!(
            "{}{total} rows, {} failed, {rate:.0} tokens/s, {hits:.0}% of prompt tokens cached{left}",
            counts.done + counts.failed,
            counts.failed
        )
    }
}

/// A span for people.
fn span(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}
