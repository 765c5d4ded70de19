//! How far a job is, for the person at the terminal: a bar, or a line now and then where there is no
//! terminal.

use std::io::IsTerminal as _;

use base::Nanos;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serving::clock::Clock;

use super::client::RequestTokens;
use super::input::InputSize;
use super::journal::Counts;
use super::tell;

/// Time between two lines where there is no terminal.
const LINE: Nanos = Nanos(10_000_000_000);
/// Parts of a bar whose length in rows is not known.
const PARTS: u64 = 10_000;

/// How far a job is.
pub(super) struct Progress {
    clock: Clock,
    bar: Option<ProgressBar>,
    size: InputSize,
    /// Bytes of the input read.
    position: u64,
    /// Rows that were over before.
    before: Counts,
    tokens: RequestTokens,
    /// When the last line was put out.
    last: base::Time,
}

impl Progress {
    /// A job whose input is of this size, of which some rows are over.
    pub(super) fn new(size: InputSize, before: Counts) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(PARTS), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("[{elapsed_precise}] {bar:30} {percent:>3}% {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let clock = Clock::start();
        Self { clock, bar, size, position: 0, before, tokens: RequestTokens::default(), last: base::Time(0) }
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
        if let Some(bar) = &self.bar {
            bar.set_position((self.share(counts) * PARTS as f64) as u64);
            bar.set_message(self.message(counts));
            return;
        }
        let now = self.clock.now();
        if now.since(self.last) >= LINE {
            self.last = now;
            tell!("{}", self.message(counts));
        }
    }

    /// Shows where the job has ended.
    pub(super) fn end(&self, counts: Counts) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        tell!("{}", self.message(counts));
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

    fn message(&self, counts: Counts) -> String {
        let seconds = self.clock.now().since(base::Time(0)).as_seconds().max(0.001);
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
