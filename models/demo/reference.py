"""An independent forward pass in NumPy: reads only the exported folder, shares no code with the training.

    python reference.py "Is this review positive? Answer yes or no.\n\nA lovely little film."
"""

import json
import sys
from pathlib import Path

import jinja2
import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer


class Reference:
    """A LlamaForCausalLM folder: chat template, tokens, greedy answers."""

    def __init__(self, folder: Path):
        self.config = json.loads((folder / "config.json").read_text())
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        self.template = jinja2.Environment().from_string(settings["chat_template"])
        import ml_dtypes  # noqa: F401  lets safetensors give bf16 to NumPy
        with safe_open(str(folder / "model.safetensors"), "np") as file:
            self.weights = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}

    def prompt(self, content: str) -> list[int]:
        text = self.template.render(messages=[{"role": "user", "content": content}], add_generation_prompt=True)
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * self.weights[name]

    def forward(self, tokens: list[int], cache: list) -> np.ndarray:
        """Logits after the last of `tokens`; `cache` holds each layer's keys and values and grows."""
        config, w = self.config, self.weights
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        size = config["hidden_size"] // heads
        past = cache[0][0].shape[0] if cache else 0
        count = len(tokens)
        angle = np.arange(past, past + count)[:, None] / config["rope_theta"] ** (np.arange(0, size, 2) / size)
        cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]

        def rotate(x):
            half = size // 2
            return np.concatenate([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)

        x = w["model.embed_tokens.weight"][tokens]
        for layer in range(config["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            h = self.norm(x, at + "input_layernorm.weight")
            q = rotate((h @ w[at + "self_attn.q_proj.weight"].T).reshape(count, heads, size))
            k = rotate((h @ w[at + "self_attn.k_proj.weight"].T).reshape(count, kv_heads, size))
            v = (h @ w[at + "self_attn.v_proj.weight"].T).reshape(count, kv_heads, size)
            if len(cache) > layer:
                k, v = np.concatenate([cache[layer][0], k]), np.concatenate([cache[layer][1], v])
                cache[layer] = (k, v)
            else:
                cache.append((k, v))
            mixed = np.empty_like(q)
            for head in range(heads):
                group = head * kv_heads // heads
                scores = q[:, head] @ k[:, group].T / np.sqrt(size)
                scores[np.arange(k.shape[0])[None, :] > past + np.arange(count)[:, None]] = -np.inf
                scores = np.exp(scores - scores.max(-1, keepdims=True))
                mixed[:, head] = scores / scores.sum(-1, keepdims=True) @ v[:, group]
            x = x + mixed.reshape(count, -1) @ w[at + "self_attn.o_proj.weight"].T
            h = self.norm(x, at + "post_attention_layernorm.weight")
            gate = h @ w[at + "mlp.gate_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T
        return self.norm(x[-1], "model.norm.weight") @ w["model.embed_tokens.weight"].T

    def answer(self, content: str, output_max: int = 24) -> str:
        """The greedy answer to one user message."""
        tokens, cache, out = self.prompt(content), [], []
        while len(out) < output_max:
            best = int(self.forward(tokens, cache).argmax())
            if best == self.config["eos_token_id"]:
                break
            out.append(best)
            tokens = [best]
        return self.tokenizer.decode(out, skip_special_tokens=True)


if __name__ == "__main__":
    model = Reference(Path(__file__).resolve().parent)
    for given in sys.argv[1:]:
        print(model.answer(given.replace("\\n", "\n")))
