//! Ownership of a running board: while somebody waits for it, it runs.
//!
//! The first claim comes from [`crate::submit::submit`]; a repeated request joins it through its [`Hold`]. When the
//! last claim is dropped (clients gone, handlers cancelled), what nobody else waits for is cancelled; a ticket
//! lets the work go on. Must not know HTTP or wire shapes.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::board::{Board, Status};
use crate::clock::Deadline;
use crate::runtime::Runtime;

/// Who decides about a board's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    /// Those who wait: with the last of them it ends.
    #[default]
    Owned,
    /// Nobody: it runs to its end by itself, or is over.
    Released,
    /// It was cancelled because nobody waited any more.
    Abandoned,
}

#[derive(Debug, Default)]
struct Readers {
    waiting: usize,
    fate: Fate,
}

/// What the claims on one board share.
#[derive(Debug, Default)]
pub struct Hold {
    readers: Mutex<Readers>,
    /// One ticket per board, however many deadlines pass at once.
    pub ticketing: tokio::sync::Mutex<()>,
}

impl Hold {
    fn readers(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A further claim on the board; `None` where the last reader's leaving has cancelled it.
    pub fn join(self: &Arc<Self>, runtime: &Arc<Runtime>, board: Arc<Board>) -> Option<Claim> {
        let mut readers = self.readers();
        if readers.fate == Fate::Abandoned {
            return None;
        }
        readers.waiting += 1;
        Some(Claim { runtime: Arc::clone(runtime), board, hold: Arc::clone(self) })
    }
}

/// A share in the ownership of a board.
pub struct Claim {
    runtime: Arc<Runtime>,
    board: Arc<Board>,
    hold: Arc<Hold>,
}

impl Claim {
    /// The first claim on a board.
    pub fn new(runtime: &Arc<Runtime>, board: Arc<Board>) -> Self {
        let hold = Hold { readers: Mutex::new(Readers { waiting: 1, fate: Fate::Owned }), ..Hold::default() };
        Self { runtime: Arc::clone(runtime), board, hold: Arc::new(hold) }
    }

    /// The board.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// What all claims on the board share.
    pub fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Waits until the board is over, or `deadline` has passed. True: it is over.
    pub async fn wait(&self, deadline: Option<Deadline>) -> bool {
        self.runtime.shared.clock.within(deadline, finished(&self.board)).await.is_ok()
    }

    /// Lets the work go on without its clients; the result is fetched by id.
    pub fn release(&self) -> Arc<Board> {
        self.hold.readers().fate = Fate::Released;
        Arc::clone(&self.board)
    }

    /// Whether the work goes on without its clients.
    pub fn is_released(&self) -> bool {
        self.hold.readers().fate == Fate::Released
    }

    /// The loop did not take it.
    pub fn refuse(self) {
        self.release();
        self.board.end(Status::Cancelled, self.runtime.shared.clock.now());
        self.runtime.registry.remove(self.board.id);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut readers = self.hold.readers();
        readers.waiting -= 1;
        if readers.waiting > 0 || readers.fate != Fate::Owned {
            return;
        }
        // Decided under the lock: who repeats the request now either kept it alive or begins anew.
        if cancel(&self.runtime, &self.board) {
            readers.fate = Fate::Abandoned;
            self.runtime.shared.metrics.disconnects.increment(1);
        } else {
            readers.fate = Fate::Released;
            self.runtime.registry.ended(&self.board);
        }
    }
}

/// Ends a board that still runs; its rows stop within two steps. False: it was over.
pub fn cancel(runtime: &Runtime, board: &Arc<Board>) -> bool {
    let was_running = board.end(Status::Cancelled, runtime.shared.clock.now());
    if was_running {
        runtime.shared.intake.leave(Arc::clone(board));
        runtime.registry.ended(board);
    }
    was_running
}

/// Resolves when the board is over.
pub async fn finished(board: &Board) {
    let mut version = board.follow();
    while !board.read().is_over() {
        // The sender lives in the board, so it cannot be gone.
        if version.changed().await.is_err() {
            return;
        }
    }
}
