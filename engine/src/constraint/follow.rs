//! Forms that are followed byte by byte, for what a grammar says badly: which items are used up, and where in a
//! row's own text an answer stands. They are made per row in no time, and share nothing.

use std::sync::Arc;

use base::TokenId;
use llguidance::toktrie::{Recognizer, SimpleVob, TokEnv};

/// What a token did to its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// More is to be decided, once these tokens have followed: nothing else may.
    Open(Vec<TokenId>),
    /// Nothing is: these bytes follow, and the output is complete.
    Ended(Vec<u8>),
}

/// What may be written, as states between bytes.
pub(super) trait Automaton {
    type State: Clone;

    /// Before the first byte, where `skipped` bytes in front of it are none of the output.
    fn start(&self, skipped: usize) -> Self::State;
    /// After one byte more; `None` where it may not follow. `written` is what stands before it.
    fn step(&self, state: &Self::State, written: &[u8], byte: u8) -> Option<Self::State>;
    /// Whether the output may end here.
    fn can_end(&self, state: &Self::State, written: &[u8]) -> bool;
}

/// A row's way through an automaton.
pub(super) struct Follower<A: Automaton> {
    automaton: Arc<A>,
    state: A::State,
    written: Vec<u8>,
    /// Whether a space in front of everything is none of the output.
    leading_space: bool,
}

impl<A: Automaton> Clone for Follower<A> {
    fn clone(&self) -> Self {
        let Self { automaton, state, written, leading_space } = self;
        let (automaton, state, written) = (Arc::clone(automaton), state.clone(), written.clone());
        Self { automaton, state, written, leading_space: *leading_space }
    }
}

impl<A: Automaton> Follower<A> {
    pub(super) fn new(automaton: A, leading_space: bool) -> Self {
        let state = automaton.start(0);
        Self { automaton: Arc::new(automaton), state, written: Vec::new(), leading_space }
    }

    /// The tokens that may come next.
    pub(super) fn allowed(&self, env: &TokEnv, ends: &[TokenId]) -> SimpleVob {
        let trie = env.tok_trie();
        let mut mask = trie.alloc_token_set();
        let mut walk = Walk { follower: self, stack: Vec::new(), written: self.written.clone() };
        trie.add_bias(&mut walk, &mut mask, &[]);
        if self.can_end() {
            ends.iter().for_each(|end| mask.allow_token(end.0));
        }
        mask
    }

    /// Takes a token's bytes; none of an end token.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Pushed, String> {
        if bytes.is_empty() {
            let pushed = self.can_end().then(|| Pushed::Ended(Vec::new()));
            return pushed.ok_or_else(|| "the output ended too early".into());
        }
        for byte in bytes {
            let next = self.step(&self.state, &self.written, *byte);
            self.state = next.ok_or("a token does not continue the constraint")?;
            self.written.push(*byte);
        }
        Ok(self.rest().map_or_else(|| Pushed::Open(Vec::new()), Pushed::Ended))
    }

    /// What follows where nothing is left to decide.
    fn rest(&self) -> Option<Vec<u8>> {
        let (mut state, mut written) = (self.state.clone(), self.written.clone());
        loop {
            let mut next = (0..=u8::MAX).filter_map(|byte| Some((byte, self.step(&state, &written, byte)?)));
            let (first, second) = (next.next(), next.next());
            match (first, second, self.automaton.can_end(&state, &written)) {
                (None, _, true) => return Some(written.split_off(self.written.len())),
                (Some((byte, after)), None, false) => {
                    state = after;
                    written.push(byte);
                }
                _ => return None,
            }
        }
    }

    fn can_end(&self) -> bool {
        self.automaton.can_end(&self.state, &self.written)
    }

    fn step(&self, state: &A::State, written: &[u8], byte: u8) -> Option<A::State> {
        let next = self.automaton.step(state, written, byte);
        match next {
            None if self.leading_space && written.is_empty() && byte == b' ' => Some(self.automaton.start(1)),
            next => next,
        }
    }
}

/// A walk through the vocabulary from where a row stands.
struct Walk<'a, A: Automaton> {
    follower: &'a Follower<A>,
    /// The states after each byte of the walk.
    stack: Vec<A::State>,
    /// What the row has written, and the walk.
    written: Vec<u8>,
}

impl<A: Automaton> Recognizer for Walk<'_, A> {
    fn pop_bytes(&mut self, count: usize) {
        self.stack.truncate(self.stack.len() - count);
        self.written.truncate(self.written.len() - count);
    }

    fn collapse(&mut self) {}

    fn trie_finished(&mut self) {
        self.pop_bytes(self.stack.len());
    }

    fn try_push_byte(&mut self, byte: u8) -> bool {
        let state = self.stack.last().unwrap_or(&self.follower.state);
        let Some(next) = self.follower.step(state, &self.written, byte) else { return false };
        self.stack.push(next);
        self.written.push(byte);
        true
    }
}
