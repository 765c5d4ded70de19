//! Memory of a step, reused by the next: it grows where it must and never moves otherwise, since recorded
//! steps hold its addresses.

use std::sync::Arc;

use crate::device::cuda::{Address, Buffer, Gpu, GpuError};

/// A buffer that grows.
#[derive(Default)]
pub(super) struct Growing(Option<Buffer>);

impl Growing {
    /// Has room for `bytes`; where.
    pub(super) fn room(&mut self, gpu: &Arc<dyn Gpu>, bytes: usize) -> Result<Address, GpuError> {
        if !self.has_room(bytes) {
            self.0 = None; // first gives back what it has
            // Half as much again: steps that grow by and by shall not move it each time.
            self.0 = Some(Buffer::new(gpu, bytes + bytes / 2 + 256)?);
        }
        Ok(self.address())
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.0.as_ref().is_some_and(|buffer| buffer.bytes() >= bytes)
    }

    pub(super) fn address(&self) -> Address {
        self.0.as_ref().map_or(Address(0), Buffer::address)
    }
}

/// Declares the pieces of a step's memory: their sizes, and where they lie.
macro_rules! pieces {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Memory of a step.
        #[derive(Default)]
        pub(super) struct GpuWorkspace {
            $($name: Growing,)*
            /// Logits of rows that sample, and what is looked for in them.
            pub(super) sampling: Sampling,
        }

        /// Bytes of each piece.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Sizes {
            $($(#[$doc])* pub(super) $name: usize,)*
        }

        impl Sizes {
            /// Of all of them.
            pub(super) fn all(&self) -> usize {
                [$(self.$name),*].into_iter().sum()
            }
        }

        impl GpuWorkspace {
            /// Whether a step fits in as it is.
            pub(super) fn has_room(&self, sizes: &Sizes) -> bool {
                $(self.$name.has_room(sizes.$name))&&*
            }

            /// Has room for a step; pieces that grow lie elsewhere then.
            pub(super) fn fit(&mut self, gpu: &Arc<dyn Gpu>, sizes: &Sizes) -> Result<(), GpuError> {
                $(self.$name.room(gpu, sizes.$name)?;)*
                Ok(())
            }

            $($(#[$doc])* pub(super) fn $name(&self) -> Address { self.$name.address() })*
        }
    };
}

pieces! {
    /// What the step computes.
    tables,
    /// The residual stream, single precision.
    x,
    /// What a block reads.
    normed,
    /// Queries, keys and values.
    qkv,
    /// What attention gives.
    attended,
    /// What the feed-forward block's first product gives.
    wide,
    /// The same, activated.
    inner,
    /// What a product in eight bits reads, and the scale of each row.
    fp8,
    row_scales,
    /// The largest number of each row of such, where several blocks find it.
    row_most,
    /// What it gives, without scales, single precision.
    sums,
    /// Partial results of attention.
    partials,
    /// Embeddings before they are projected, single precision.
    embedded,
    /// Numbers rounded for a projection.
    rounded,
    /// The stream of tokens that sample.
    last_x,
    /// What attention gives for them.
    last_attended,
    /// Their hidden states.
    hidden,
}

/// Memory of sampling, which no recorded step holds the addresses of.
#[derive(Default)]
pub(super) struct Sampling {
    /// `[rows, vocabulary]`, single precision.
    pub(super) logits: Growing,
    /// Bits of tokens that may be drawn.
    pub(super) masks: Growing,
    /// What is asked of each row.
    pub(super) asked: Growing,
    /// What was found in each piece of a row.
    pub(super) pieces: Growing,
    /// What was found.
    pub(super) found: Growing,
}
