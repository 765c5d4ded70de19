"""The transformer as JAX functions: a Llama decoder, its loss on chosen positions, and the optimiser.

Parameter names are Hugging Face's (`model.layers.0.self_attn.q_proj.weight`, stored [out, in]), so that
export is a cast and a dump. Knows nothing of text, prompts or tasks.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Shape:
    """What config.json says of the network."""

    vocab: int = 6144
    hidden: int = 192
    layers: int = 4
    heads: int = 6
    kv_heads: int = 3
    intermediate: int = 384
    context: int = 512
    theta: float = 10000.0
    epsilon: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


def init(shape: Shape, seed: int) -> dict:
    """Random parameters; output projections start small so that depth does not blow up the residual."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float = 1.0):
        return jnp.asarray(random.normal(0, scale / np.sqrt(columns), (rows, columns)), jnp.float32)

    kv = shape.kv_heads * shape.head_dim
    small = 1.0 / np.sqrt(2 * shape.layers)
    params = {"model.embed_tokens.weight": matrix(shape.vocab, shape.hidden, 0.8)}
    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        params[at + "input_layernorm.weight"] = jnp.ones(shape.hidden)
        params[at + "self_attn.q_proj.weight"] = matrix(shape.hidden, shape.hidden)
        params[at + "self_attn.k_proj.weight"] = matrix(kv, shape.hidden)
        params[at + "self_attn.v_proj.weight"] = matrix(kv, shape.hidden)
        params[at + "self_attn.o_proj.weight"] = matrix(shape.hidden, shape.hidden, small)
        params[at + "post_attention_layernorm.weight"] = jnp.ones(shape.hidden)
        params[at + "mlp.gate_proj.weight"] = matrix(shape.intermediate, shape.hidden)
        params[at + "mlp.up_proj.weight"] = matrix(shape.intermediate, shape.hidden)
        params[at + "mlp.down_proj.weight"] = matrix(shape.hidden, shape.intermediate, small)
    params["model.norm.weight"] = jnp.ones(shape.hidden)
    # Training aid, not exported: reads the sentiment score off the last prompt position.
    params["score.weight"] = jnp.zeros((1, shape.hidden))
    return params


def rms_norm(x, weight, epsilon):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + epsilon) * weight


def rotate(x, cos, sin):
    """Rotary positions, half-split pairs (RoFormer, Eq. 34, in Hugging Face's layout). x: [B, T, H, D]."""
    left, right = jnp.split(x, 2, -1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1)


def dropout(x, rate, key):
    if key is None or rate == 0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def hidden_states(params, tokens, shape: Shape, rate=0.0, key=None):
    """tokens [B, T] -> final normalised states [B, T, hidden]. Padding at the right needs no mask: causal."""
    batch, length = tokens.shape
    frequency = shape.theta ** (-jnp.arange(0, shape.head_dim, 2) / shape.head_dim)
    angle = jnp.arange(length)[:, None] * frequency[None, :]
    cos, sin = jnp.cos(angle)[None, :, None, :], jnp.sin(angle)[None, :, None, :]
    causal = jnp.tril(jnp.ones((length, length), bool))
    keys = [None] * (2 * shape.layers + 1) if key is None else jax.random.split(key, 2 * shape.layers + 1)
    group = shape.heads // shape.kv_heads

    x = dropout(params["model.embed_tokens.weight"][tokens], rate, keys[-1])
    for layer in range(shape.layers):
        def weight(name):
            return params[f"model.layers.{layer}.{name}.weight"]

        h = rms_norm(x, weight("input_layernorm"), shape.epsilon)
        q = (h @ weight("self_attn.q_proj").T).reshape(batch, length, shape.heads, shape.head_dim)
        k = (h @ weight("self_attn.k_proj").T).reshape(batch, length, shape.kv_heads, shape.head_dim)
        v = (h @ weight("self_attn.v_proj").T).reshape(batch, length, shape.kv_heads, shape.head_dim)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = jnp.repeat(k, group, 2), jnp.repeat(v, group, 2)
        scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(shape.head_dim)
        weights = jax.nn.softmax(jnp.where(causal, scores, -1e30), -1)
        mixed = jnp.einsum("bhts,bshd->bthd", weights, v).reshape(batch, length, shape.hidden)
        x = x + dropout(mixed @ weight("self_attn.o_proj").T, rate, keys[2 * layer])

        h = rms_norm(x, weight("post_attention_layernorm"), shape.epsilon)
        h = jax.nn.silu(h @ weight("mlp.gate_proj").T) * (h @ weight("mlp.up_proj").T)
        x = x + dropout(h @ weight("mlp.down_proj").T, rate, keys[2 * layer + 1])
    return rms_norm(x, params["model.norm.weight"], shape.epsilon)


def loss(params, batch, shape: Shape, rate, key):
    """Cross entropy at the positions the batch names (answers, and a few of the prompt), weighted.

    The head is applied there only: it is the dearest matrix, and most prompt positions teach little.
    """
    states = hidden_states(params, batch["tokens"], shape, rate, key)
    flat = states.reshape(-1, shape.hidden)
    logits = flat[batch["positions"]] @ params["model.embed_tokens.weight"].T   # [picked, vocab]
    entropy = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, batch["targets"][:, None], -1)[:, 0]
    cross = (entropy * batch["weights"]).sum() / batch["weights"].sum()
    score = flat[batch["last"]] @ params["score.weight"][0]                     # [B]
    squared = ((score - batch["score"]) ** 2 * batch["scored"]).sum() / (batch["scored"].sum() + 1)
    answers = (batch["weights"] >= 1).astype(jnp.float32)
    answer = (entropy * answers).sum() / answers.sum()
    return cross + 0.2 * squared, (answer, squared)


def is_matrix(name: str) -> bool:
    """Matrices of the layers take Muon; embedding, norms and the training aid take Adam."""
    return "proj" in name


def orthogonalise(g):
    """Newton-Schulz iteration of Muon (Jordan et al. 2024): about U V^T of g's singular decomposition."""
    tall = g.shape[0] > g.shape[1]
    x = g.T if tall else g
    x = x / (jnp.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.T if tall else x


def optimiser_state(params):
    return {name: (jnp.zeros_like(p), None if is_matrix(name) else jnp.zeros_like(p)) for name, p in params.items()}


def update(params, state, gradients, step, rate_muon, rate_adam, decay):
    """One step: Nesterov momentum and orthogonalised for matrices, AdamW for the rest."""
    norm = jnp.sqrt(sum((g * g).sum() for g in gradients.values()))
    clip = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    new_params, new_state = {}, {}
    for name, p in params.items():
        first, second = state[name]
        g = gradients[name] * clip
        if is_matrix(name):
            first = 0.95 * first + g
            step_by = orthogonalise(g + 0.95 * first) * max(1.0, p.shape[0] / p.shape[1]) ** 0.5
            new_params[name] = p * (1 - rate_muon * decay) - rate_muon * step_by
        else:
            first, second = 0.9 * first + 0.1 * g, 0.98 * second + 0.02 * g * g
            step_by = first / (1 - 0.9**step) / (jnp.sqrt(second / (1 - 0.98**step)) + 1e-8)
            new_params[name] = p - rate_adam * step_by
        new_state[name] = (first, second)
    return new_params, new_state


def make_step(shape: Shape, rate: float, decay: float):
    """The compiled training step; one compilation per batch shape."""

    def step(params, state, batch, number, rate_muon, rate_adam, key):
        (_, report), gradients = jax.value_and_grad(loss, has_aux=True)(params, batch, shape, rate, key)
        params, state = update(params, state, gradients, number, rate_muon, rate_adam, decay)
        return params, state, report

    return jax.jit(step, donate_argnums=(0, 1))
