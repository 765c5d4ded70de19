//! How long a start waits for a database that is away, and when it tries again: whoever starts both at once starts the
//! server first now and then. What no time mends (a wrong password, a certificate that is not trusted, no such database)
//! is no reason to wait.
//!
//! Must not know signals, nor whose clock it is.

use std::time::Duration;

use store::Error;

/// The first pause between two tries; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time between two lines of the log.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// What is done about a database that is away.
#[derive(Debug, PartialEq, Eq)]
struct NextTry {
    /// How long to wait before it.
    pause: Duration,
    /// Whether the log says that it is waited for.
    is_said: bool,
}

/// A start that waits.
struct Patience {
    most: Duration,
    pause: Duration,
    /// When the log said so last.
    said: Option<Duration>,
}

impl Patience {
    fn new(most: Duration) -> Self {
        Self { most, pause: PAUSE_FIRST, said: None }
    }

    /// The try after one that found the database away, so long after the start; `None`: the start has waited long enough.
    fn next_try(&mut self, waited: Duration) -> Option<NextTry> {
        let left = self.most.checked_sub(waited).filter(|left| !left.is_zero())?;
        let is_said = self.said.is_none_or(|said| waited.saturating_sub(said) >= SAID_EVERY);
        if is_said {
            self.said = Some(waited);
        }
        let pause = self.pause.min(left);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Some(NextTry { pause, is_said })
    }
}

/// Opens a database that a first try found away, as soon as it is there. `waited` is the time since the start.
///
/// # Errors
/// That it is away still, after `most`; or at once what is wrong with it otherwise.
pub(super) async fn until_there<T>(
    mut away: Error,
    most: Duration,
    waited: impl Fn() -> Duration,
    pause: impl AsyncFn(Duration),
    open: impl AsyncFn() -> Result<T, Error>,
) -> Result<T, Error> {
    let mut patience = Patience::new(most);
    while let Some(next) = patience.next_try(waited()) {
        if next.is_said {
            let (seconds, of) = (waited().as_secs(), most.as_secs());
            tracing::warn!(error = %away, "waiting for the database: {seconds} of {of} s (store.start_wait_s)");
        }
        pause(next.pause).await;
        match open().await {
            Err(error) if error.may_come_up() => away = error,
            opened => return opened,
        }
    }
    Err(away)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn away() -> Error {
        Error::Away("connection refused".into())
    }

    /// Opens a database that answers so at each further try; gives what comes of it, and the pauses. Time passes in pauses
    /// alone.
    async fn opened(
        most: Duration,
        answers: Vec<Result<&'static str, Error>>,
    ) -> (Result<&'static str, Error>, Vec<Duration>) {
        let (pauses, answers) = (RefCell::new(Vec::new()), RefCell::new(answers.into_iter()));
        let waited = Cell::new(Duration::ZERO);
        let pause = async |span: Duration| {
            waited.set(waited.get() + span);
            pauses.borrow_mut().push(span);
        };
        let open = async || answers.borrow_mut().next().unwrap_or_else(|| Err(away()));
        let opened = until_there(away(), most, || waited.get(), pause, open).await;
        (opened, pauses.into_inner())
    }

    #[tokio::test]
    async fn a_database_that_comes_up_is_opened_by_the_next_try() {
        let (opened, pauses) = opened(MINUTE, vec![Err(away()), Err(away()), Ok("open")]).await;
        assert_eq!(opened.expect("it came up"), "open");
        assert_eq!(pauses, [100, 200, 400].map(Duration::from_millis), "each pause is longer");
    }

    #[tokio::test]
    async fn what_no_time_mends_ends_the_wait_at_once() {
        let untrusted = Error::Away("invalid peer certificate: Expired".into());
        for lasting in [Error::Address("no such database".into()), untrusted] {
            let (opened, pauses) = opened(MINUTE, vec![Err(lasting)]).await;
            assert!(opened.as_ref().is_err_and(|error| !error.may_come_up()), "{opened:?}");
            assert_eq!(pauses.len(), 1);
        }
    }

    #[tokio::test]
    async fn a_database_that_stays_away_is_waited_for_as_long_as_is_said() {
        for most in [Duration::from_secs(1), MINUTE, 10 * MINUTE] {
            let (opened, pauses) = opened(most, Vec::new()).await;
            assert!(matches!(opened, Err(Error::Away(_))), "{opened:?}");
            assert_eq!(pauses.iter().sum::<Duration>(), most);
            assert!(pauses.iter().all(|pause| *pause <= PAUSE_MAX), "{pauses:?}");
        }
        let (_, pauses) = opened(Duration::ZERO, Vec::new()).await;
        assert!(pauses.is_empty());
    }

    #[test]
    fn the_log_says_at_once_that_a_database_is_waited_for_and_again_every_ten_seconds() {
        let (mut patience, mut waited, mut said) = (Patience::new(MINUTE), Duration::ZERO, Vec::new());
        while let Some(next) = patience.next_try(waited) {
            if next.is_said {
                said.push(waited.as_secs());
            }
            // A try takes time too.
            waited += next.pause + Duration::from_millis(500);
        }
        assert_eq!((said.first(), said.len()), (Some(&0), 6), "{said:?}");
        assert!(said.windows(2).all(|two| (10..13).contains(&(two[1] - two[0]))), "{said:?}");
    }
}
