//! The order of a layer's operations, once for all devices.
//!
//! A device's part of it are the operations ([`LayerOps`]) on memory of its own: it knows how a product is
//! computed, and must not know what comes before or behind it.

use crate::checkpoint::ModelConfig;
use crate::checkpoint::config::Residual;

/// One layer's weights: matrices and normalisations as a device keeps them.
pub(super) struct LayerWeights<M, N> {
    pub(super) attn_norm: N,
    /// Queries, keys and values in one product: `[(heads + 2 kv_heads) head_dim, hidden]`.
    pub(super) qkv: M,
    pub(super) q_norm: Option<N>,
    pub(super) k_norm: Option<N>,
    /// `[hidden, heads head_dim]`
    pub(super) out: M,
    /// Of what attention has computed.
    pub(super) attn_post_norm: Option<N>,
    pub(super) mlp_norm: N,
    /// Up to `[intermediate]`; where the block is gated, gates and what they gate in one product.
    pub(super) up: M,
    /// `[hidden, intermediate]`
    pub(super) down: M,
    /// Of what the feed-forward block has computed.
    pub(super) mlp_post_norm: Option<N>,
}

impl<M, N> LayerWeights<M, N> {
    /// What its products read.
    pub(super) fn matrices(&self) -> [&M; 4] {
        [&self.qkv, &self.out, &self.up, &self.down]
    }
}

/// Operations of a step on its device's memory: each reads what an earlier one left there.
pub(super) trait LayerOps {
    type Matrix;
    type Norm;
    /// What logits follow from, or where it is.
    type Hidden;
    type Error;

    /// The stream: embeddings, with learned positions.
    fn embed(&mut self) -> Result<(), Self::Error>;

    /// What a block's first product reads: the stream, normalised where there is a norm, as these weights
    /// need it.
    fn block_input(&mut self, norm: Option<&Self::Norm>, weights: &Self::Matrix) -> Result<(), Self::Error>;

    /// Queries, keys and values of the block's input.
    fn project_qkv(&mut self, qkv: &Self::Matrix) -> Result<(), Self::Error>;

    /// Normalises heads where the model does, rotates, and writes layer `number`'s keys and values to the
    /// pool.
    fn write_keys_and_values(
        &mut self,
        number: usize,
        layer: &LayerWeights<Self::Matrix, Self::Norm>,
    ) -> Result<(), Self::Error>;

    /// Attention of all tokens over the pool.
    fn attend(&mut self, number: usize) -> Result<(), Self::Error>;

    /// From here on there are the rows that sample, and no others.
    fn keep_sampled(&mut self) -> Result<(), Self::Error>;

    /// Adds the output projection of what attention gave to the stream, of all ranks, normalised where the
    /// layer has a norm for it.
    fn add_attended(&mut self, layer: &LayerWeights<Self::Matrix, Self::Norm>) -> Result<(), Self::Error>;

    /// The feed-forward block's inner numbers: the block's input times `up`, activated.
    fn project_up(&mut self, layer: &LayerWeights<Self::Matrix, Self::Norm>) -> Result<(), Self::Error>;

    /// Adds the projection of the inner numbers to the stream, of all ranks, normalised as above.
    fn add_inner(&mut self, layer: &LayerWeights<Self::Matrix, Self::Norm>) -> Result<(), Self::Error>;

    /// Normalises the stream itself.
    fn normalise_stream(&mut self, norm: &Self::Norm) -> Result<(), Self::Error>;

    /// Final normalisation and projection.
    fn finish(&mut self) -> Result<Self::Hidden, Self::Error>;
}

/// Computes a step through all layers. `samples`: whether any token's hidden state is wanted, `None` where
/// not.
pub(super) fn compute<O: LayerOps>(
    ops: &mut O,
    layers: &[LayerWeights<O::Matrix, O::Norm>],
    config: &ModelConfig,
    samples: bool,
) -> Result<Option<O::Hidden>, O::Error> {
    let norm_first = config.norm_first; // blocks normalise what they read, or else the stream they leave
    ops.embed()?; // x [tokens, hidden]
    for (number, layer) in layers.iter().enumerate() {
        let is_last = number + 1 == layers.len();
        ops.block_input(norm_first.then_some(&layer.attn_norm), &layer.qkv)?; // input [tokens, hidden]
        ops.project_qkv(&layer.qkv)?; // qkv [tokens, queries | keys | values]
        // All tokens' before any attention: slots may read what others of the step write.
        ops.write_keys_and_values(number, layer)?; // pool
        if is_last && !samples {
            return Ok(None); // nothing reads what would come
        }
        ops.attend(number)?; // attended [tokens, heads head_dim]
        if is_last {
            // Nothing reads the other tokens beyond their keys and values.
            ops.keep_sampled()?; // x [sampled, hidden], attended [sampled, heads head_dim]
        }
        if let Residual::Parallel { .. } = config.residual {
            // What attention gave waits until the other block has read the stream without it.
            feed_forward(ops, layer, norm_first)?; // x += inner down^T
            ops.add_attended(layer)?; // x += attended out^T
            continue;
        }
        ops.add_attended(layer)?; // x += attended out^T
        if !norm_first {
            ops.normalise_stream(&layer.attn_norm)?;
        }
        feed_forward(ops, layer, norm_first)?; // x += inner down^T
        if !norm_first {
            ops.normalise_stream(&layer.mlp_norm)?;
        }
    }
    ops.finish().map(Some) // hidden [sampled, embedding]
}

/// The feed-forward block.
fn feed_forward<O: LayerOps>(
    ops: &mut O,
    layer: &LayerWeights<O::Matrix, O::Norm>,
    norm_first: bool,
) -> Result<(), O::Error> {
    ops.block_input(norm_first.then_some(&layer.mlp_norm), &layer.up)?; // input [tokens, hidden]
    ops.project_up(layer)?; // inner [tokens, intermediate]
    ops.add_inner(layer)
}
