//! The test double of an executor: it keeps tokens in blocks as a real one keeps keys and values, so a
//! prompt is read back through the blocks that the scheduler granted, and answered with its last word.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};

use base::{
    BatchPlan, BlockId, End, ExecError, Executor, Nanos, RequestId, RowOutcome, Sampled, Slot, StepOutcome,
    TokenId, text::ByteText,
};

/// What stands in front of the executor.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Steps that may pass; `None`: all.
    allowed: Option<u64>,
    passed: u64,
    fail: u64,
    panic: bool,
    computed: u64,
}

impl Gate {
    /// A gate that lets everything through.
    pub fn open() -> Self {
        let state = State { allowed: None, passed: 0, fail: 0, panic: false, computed: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let result = change(&mut state);
        self.changed.notify_all();
        result
    }

    /// Lets nothing through from now on.
    pub fn shut(&self) {
        self.change(|state| state.allowed = Some(0));
    }

    /// Lets this many more steps through.
    pub fn allow(&self, steps: u64) {
        self.change(|state| state.allowed = state.allowed.map(|allowed| allowed + steps));
    }

    /// Lets everything through.
    pub fn release(&self) {
        self.change(|state| state.allowed = None);
    }

    /// The next steps fail whole.
    pub fn fail(&self, steps: u64) {
        self.change(|state| state.fail = steps);
    }

    /// The next step panics.
    pub fn panic(&self) {
        self.change(|state| state.panic = true);
    }

    /// Steps begun so far, the one that waits at the gate included.
    pub fn passed(&self) -> u64 {
        self.change(|state| state.passed)
    }

    /// Prompt tokens computed so far.
    pub fn computed(&self) -> u64 {
        self.change(|state| state.computed)
    }

    /// Waits for a turn; says whether the step shall fail or panic.
    fn pass(&self, computed: u64) -> (bool, bool) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.passed += 1;
        while state.allowed == Some(0) {
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.allowed = state.allowed.map(|allowed| allowed - 1);
        let fail = state.fail > 0;
        state.fail = state.fail.saturating_sub(1);
        if !fail {
            state.computed += computed;
        }
        (fail, std::mem::take(&mut state.panic))
    }
}

/// The executor.
pub struct Double {
    gate: Arc<Gate>,
    block_tokens: usize,
    blocks: HashMap<BlockId, Vec<TokenId>>,
    answers: HashMap<RequestId, Vec<u8>>,
}

impl Double {
    /// An executor behind a gate.
    pub fn new(gate: Arc<Gate>, block_tokens: u32) -> Self {
        Self { gate, block_tokens: block_tokens as usize, blocks: HashMap::new(), answers: HashMap::new() }
    }

    fn write(&mut self, slot: &Slot) {
        for (i, token) in slot.input.iter().enumerate() {
            let place = slot.write_offset as usize + i;
            let block = self.blocks.entry(slot.write_blocks[place / self.block_tokens]).or_default();
            block.resize(self.block_tokens, TokenId(0));
            block[place % self.block_tokens] = *token;
        }
    }

    /// All tokens of a request, read through its blocks.
    fn read(&self, slot: &Slot) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        for run in &slot.context {
            let all = run.blocks.iter().flat_map(|block| self.blocks[block].iter().copied());
            tokens.extend(all.take(run.tokens.0 as usize));
        }
        assert_eq!(tokens.len(), slot.start as usize, "the context ends where the input starts");
        tokens.extend(&slot.input);
        tokens
    }

    fn sample(&mut self, slot: &Slot) -> Option<RowOutcome> {
        let spec = slot.sample.as_ref()?;
        let index = spec.output_index as usize;
        if slot.is_prefill {
            let tokens = self.read(slot);
            let answer = answer_to(&tokens[..tokens.len() - index]);
            self.answers.insert(slot.request, answer);
        }
        let answer = &self.answers[&slot.request];
        let is_end = index >= answer.len() && !spec.generation.ignore_end;
        let is_last = index as u64 + 1 >= spec.generation.output_max.0;
        let byte = answer.get(index).copied().unwrap_or(b'.');
        let sampled = if is_end {
            Sampled::one(ByteText::END, String::new(), Some(End::Stop))
        } else {
            let text = char::from(byte).to_string();
            Sampled::one(TokenId(byte.into()), text, is_last.then_some(End::Length))
        };
        Some(RowOutcome { request: slot.request, result: Ok(sampled) })
    }
}

/// The answer to a prompt: what follows `Repeat: `, else its last word.
fn answer_to(prompt: &[TokenId]) -> Vec<u8> {
    let bytes: Vec<u8> = prompt.iter().filter_map(|token| u8::try_from(token.0).ok()).collect();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end_matches("[assistant]");
    if let Some((_, rest)) = text.split_once("Repeat: ") {
        return rest.as_bytes().to_vec();
    }
    text.split_whitespace().next_back().unwrap_or_default().as_bytes().to_vec()
}

impl Executor for Double {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        let (fail, panic) = self.gate.pass(plan.prefill_tokens().0);
        assert!(!panic, "the test asked for a panic");
        if fail {
            return Err(ExecError::Failed("the test asked for a failure".into()));
        }
        for request in &plan.retired {
            self.answers.remove(request);
        }
        for slot in &plan.slots {
            self.write(slot);
        }
        let rows = plan.slots.iter().filter_map(|slot| self.sample(slot)).collect();
        Ok(StepOutcome { step: plan.step, elapsed: Nanos(1_000), rows, prompts: Vec::new() })
    }
}
