//! What the command says to people: what was asked for on standard output, everything else on standard error;
//! a bar where that is a terminal, a line now and then where it is a file.

use std::io::{IsTerminal as _, Write as _};

use base::{Nanos, Time};
use gateway::config::is_dumb_terminal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serving::clock::Clock;

/// What went wrong, for a person at a terminal.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// Prints what the command was asked for.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        // Nobody listens any more: nothing is left to do about it.
        let _ = writeln!(std::io::stdout(), $($arg)*);
    }};
}
pub(crate) use say;

/// Says a thing to the person at the terminal, beside what the command puts out.
macro_rules! tell {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        // Nobody listens any more: nothing is left to do about it.
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}
pub(crate) use tell;

/// Whether standard error is a terminal on which lines can be written over.
fn has_bars() -> bool {
    std::io::stderr().is_terminal() && !is_dumb_terminal()
}

/// Asks the person at the terminal; `None` where there is none to ask. Anything but yes is no.
pub(crate) fn confirm(question: &str) -> Option<bool> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return None;
    }
    let mut error = std::io::stderr();
    write!(error, "{question} [y/N] ").and_then(|()| error.flush()).ok()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).ok()?;
    Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Time between two lines where there is no terminal.
const LINE: Nanos = Nanos(10_000_000_000);
/// Parts of a whole bar.
const PARTS: f64 = 10_000.0;

/// How far something is: a bar, or a line now and then.
pub(crate) struct Meter {
    clock: Clock,
    bar: Option<ProgressBar>,
    /// When the last line was put out.
    last: Time,
}

impl Meter {
    /// At nothing.
    pub(crate) fn new() -> Self {
        let bar = has_bars().then(|| {
            let bar = ProgressBar::with_draw_target(Some(PARTS as u64), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("[{elapsed_precise}] {bar:30} {percent:>3}% {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { clock: Clock::start(), bar, last: Time(0) }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.clock.now().since(Time(0)).as_seconds()
    }

    /// Shows that `share` of it, from 0 to 1, is over, and what `message` says: on the bar, or as a line
    /// where the last one is some time ago.
    pub(crate) fn show(&mut self, share: f64, message: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_position((share.clamp(0.0, 1.0) * PARTS) as u64);
            bar.set_message(message());
            return;
        }
        let now = self.clock.now();
        if now.since(self.last) >= LINE {
            self.last = now;
            tell!("{}", message());
        }
    }

    /// Says a thing at once, above the bar.
    pub(crate) fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell!("{text}")),
            None => tell!("{text}"),
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A flag's help with its default behind it, as clap writes its own: for flags whose default is the
/// configuration's.
pub(crate) fn with_default(help: &str, default: impl std::fmt::Display) -> String {
    format!("{help} [default: {default}]")
}
