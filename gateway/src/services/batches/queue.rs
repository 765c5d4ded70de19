//! The order in which batches that are claimed together begin: one after the other, each once the one before
//! it has handed rows to the scheduler. Whichever is there first goes on first, so where a gateway is killed
//! again and again the oldest ends, and does not begin behind younger ones each time.

use tokio::sync::oneshot;

/// Batches that begin one after the other.
#[derive(Debug, Default)]
pub(super) struct BatchQueue {
    last: Option<oneshot::Receiver<()>>,
}

impl BatchQueue {
    /// The place behind all that were given.
    pub(super) fn next(&mut self) -> QueueTicket {
        let (after, has_begun) = oneshot::channel();
        QueueTicket { before: self.last.replace(has_begun), after: Some(after) }
    }
}

/// A batch's place; by default nobody stands before or behind it. Whoever drops it is out of the way.
#[derive(Debug, Default)]
pub(super) struct QueueTicket {
    before: Option<oneshot::Receiver<()>>,
    after: Option<oneshot::Sender<()>>,
}

impl QueueTicket {
    /// Waits until the one before has begun.
    pub(super) async fn come(&mut self) {
        if let Some(before) = &mut self.before {
            // Err: it is gone, which is as good.
            let _ = before.await;
            self.before = None;
        }
    }

    /// This one has begun.
    pub(super) fn pass(&mut self) {
        self.after = None;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn each_waits_for_the_one_before_it_to_begin_or_to_go() {
        let mut line = BatchQueue::default();
        let [mut first, second, mut third] = [line.next(), line.next(), line.next()];
        let mut second = Some(second);
        let comes = |ticket_in_line: &mut QueueTicket| ticket_in_line.come().now_or_never().is_some();
        assert!(comes(&mut first) && comes(&mut QueueTicket::default()));
        assert!(!second.as_mut().is_some_and(comes));
        first.pass();
        assert!(second.as_mut().is_some_and(comes) && !comes(&mut third));
        second = None;
        assert!(second.is_none() && comes(&mut third));
    }
}
