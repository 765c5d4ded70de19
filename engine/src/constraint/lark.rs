//! Grammars in the notation of Lark, which callers write themselves: how large one may be, and where it is compiled.

use base::ConstraintError;

/// Rules and brackets of a grammar: compiling goes as deep as they are many.
const PARTS_MAX: usize = 2_000;
/// Memory for that depth, of which only what is used is taken.
const STACK_BYTES: usize = 64 << 20;

/// Refuses a grammar of too many parts, and JSON schemas in one, which have bounds of their own.
pub(super) fn check(lark: &str) -> Result<(), ConstraintError> {
    // Every rule has a colon.
    let parts = lark.bytes().filter(|byte| matches!(byte, b':' | b'(' | b'[')).count();
    if parts > PARTS_MAX {
        let reason = format!("has {parts} rules and brackets; at most {PARTS_MAX} are allowed");
        return Err(ConstraintError(reason));
    }
    match lark.contains("%json") {
        true => Err(ConstraintError("has a JSON schema in it: ask for that alone".into())),
        false => Ok(()),
    }
}

/// Runs `work` where it may go that deep.
pub(super) fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, ConstraintError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| ConstraintError(format!("cannot be compiled now: {error}")))?;
        thread.join().map_err(|_| ConstraintError("cannot be compiled".into()))
    })
}
