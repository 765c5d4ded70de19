//! What ranks do together.

/// A collective operation that will not complete: another rank has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another rank failed")]
pub struct Broken;

/// One rank's end of a group. All ranks call the same operations, with equal lengths, in the same order; each
/// call returns when every rank has made it, or fails as soon as one cannot.
pub trait Collective: Send + Sync {
    /// This rank's number, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn ranks(&self) -> usize;

    /// `values` = the sum of every rank's `values`, added in the order of ranks: the same bits on all of
    /// them, whoever came first.
    fn all_reduce(&self, values: &mut [f32]) -> Result<(), Broken>;

    /// `all` = every rank's `part`, in the order of ranks.
    fn all_gather(&self, part: &[f32], all: &mut [f32]) -> Result<(), Broken>;
}

/// The only rank of a model that is not cut.
pub struct Alone;

impl Collective for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn all_reduce(&self, _values: &mut [f32]) -> Result<(), Broken> {
        Ok(())
    }

    fn all_gather(&self, part: &[f32], all: &mut [f32]) -> Result<(), Broken> {
        all.copy_from_slice(part);
        Ok(())
    }
}
