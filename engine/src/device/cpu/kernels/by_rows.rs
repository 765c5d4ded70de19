//! Which version of a kernel computes a tile: one is compiled for each number of rows.

/// Calls `$kernel::<M>($tile)` for as many rows as `$rows` says, which `$known` must list; or `$kernel::<M, V>($tile)`
/// with as many vectors at once as the list says that has the rows.
///
/// Its caller's contract is the kernel's own.
macro_rules! by_rows {
    ($rows:expr, $([$($known:literal)*] x $vectors:literal,)+ $kernel:ident, $tile:expr) => {
        match $rows {
            // SAFETY: passed on from the caller's own contract.
            $($($known => unsafe { $kernel::<$known, $vectors>($tile) },)*)+
            _ => unreachable!("tiles have at most {:?} rows", [$($($known),*),+]),
        }
    };
    ($rows:expr, [$($known:literal)*], $kernel:ident, $tile:expr) => {
        match $rows {
            // SAFETY: passed on from the caller's own contract.
            $($known => unsafe { $kernel::<$known>($tile) },)*
            _ => unreachable!("tiles have at most {:?} rows", [$($known),*]),
        }
    };
}
pub(super) use by_rows;
