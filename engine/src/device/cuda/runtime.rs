//! What openings of GPUs leave for later ones: compiled kernels, and contexts that were lost.
//!
//! Whoever opens GPUs makes one, and opens all of them with it, those of a model that is loaded again too.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::cuda_device::{Cubin, compile};
use super::{CudaError, KernelSet};

/// A compute capability, major and minor, and which kernels; without a set all.
type CubinKey = ((i32, i32), Option<KernelSet>);

/// Opens GPUs of this process: [`Self::open`].
#[derive(Debug, Default)]
pub struct CudaRuntime {
    kernels: Mutex<HashMap<CubinKey, Arc<Cubin>>>,
    /// GPUs whose context was lost: it is reset before their next opening. What was left there is gone with
    /// that, so a lost device gives nothing back itself, however late it is dropped.
    contexts_to_reset: Mutex<BTreeSet<i32>>,
}

impl CudaRuntime {
    /// Kernels for a compute capability, compiled once.
    pub(super) fn kernels(
        &self,
        capability: (i32, i32),
        set: Option<KernelSet>,
    ) -> Result<Arc<Cubin>, CudaError> {
        let mut compiled = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = compiled.get(&(capability, set)) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(compile(capability, set)?);
        compiled.insert((capability, set), Arc::clone(&made));
        Ok(made)
    }

    /// The context of this device of the driver is lost.
    pub(super) fn reset_later(&self, device: i32) {
        self.contexts_to_reset.lock().unwrap_or_else(PoisonError::into_inner).insert(device);
    }

    /// Whether the context must be reset before it is used; asking takes on to do so.
    pub(super) fn must_reset(&self, device: i32) -> bool {
        self.contexts_to_reset.lock().unwrap_or_else(PoisonError::into_inner).remove(&device)
    }
}
