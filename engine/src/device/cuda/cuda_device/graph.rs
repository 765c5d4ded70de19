//! Recorded launches, as the driver holds them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::{result, sys};

use crate::device::cuda::Graph;

/// Launches that the driver replays as one.
pub(super) struct RecordedGraph {
    pub(super) graph: sys::CUgraphExec,
    pub(super) context: sys::CUcontext,
    pub(super) is_lost: Arc<AtomicBool>,
}

// SAFETY: the driver takes it from any thread.
unsafe impl Send for RecordedGraph {}

impl Graph for RecordedGraph {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for RecordedGraph {
    fn drop(&mut self) {
        if !self.is_lost.load(Ordering::Acquire) {
            // SAFETY: it was made by `record` and is nobody else's; its context is as it was: its owner drops
            // it before the device.
            unsafe {
                let _ = result::ctx::set_current(self.context);
                let _ = result::graph::exec_destroy(self.graph);
            }
        }
    }
}
