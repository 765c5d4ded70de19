"""Logits of tiny models of each family by transformers: what engine/tests/families.rs holds the engine against.

    pip install torch transformers numpy
    python engine/tests/families/generate.py

writes one JSON file per model beside itself: its config.json as the hub has it (`config`) and as transformers
writes it (`saved`), the names and shapes of its tensors, a prompt, and the logits at some of its positions.
Weights are no part of it: number `i` of a tensor follows from the tensor's name and `i` (`numbers`), and the
test makes the same. Everything is computed in double precision, so that what is compared is the definition.

Two things of transformers are not taken over. Falcon's eager attention adds ALiBi twice, in the mask and to the
scores; its other attention, which it takes unless told otherwise, adds it once, as TII's own code does. MPT's
`alibi_bias_max` is read and not used; MosaicML's own code uses it, and so it is handed on here (`as_meant`).
"""

import functools
import json
import pathlib

import numpy as np
import torch
import transformers

MASK = 2**64 - 1
POSITIONS = [0, 6, 17, 40, 41, 62]
TOKENS = 63

# Beyond 256 positions bf16, which Falcon has its biases in, tells no neighbours apart.
LONG = {"falcon-rw-sixteen-heads": [300, 420]}


def stream(seed, count):
    """SplitMix64: `count` numbers of -1..1."""
    states = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64)
    states = (states ^ (states >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    states = (states ^ (states >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    states = states ^ (states >> np.uint64(31))
    return ((states >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23) - np.float32(1.0)).astype(np.float32)


def seed_of(name):
    """FNV-1a."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & MASK
    return seed


def numbers(name, shape, centre):
    """A tensor: small biases, norms about `centre`, embeddings of 1, matrices of about unit gain."""
    unit = stream(seed_of(name), int(np.prod(shape)))
    if name.endswith(".bias"):
        middle, spread = 0.0, 0.1
    elif len(shape) == 1:
        middle, spread = centre, 0.25
    elif any(part in name for part in ["embed", "wte", "lm_head"]):
        middle, spread = 0.0, 1.0
    else:
        middle, spread = 0.0, np.float32(np.sqrt(np.float32(3.0 / shape[-1])))
    return (np.float32(middle) + np.float32(spread) * unit).astype(np.float32).reshape(shape)


def mpt(**changes):
    attention = {"alibi": True, "alibi_bias_max": 8, "attn_type": "multihead_attention", "clip_qkv": None,
                 "prefix_lm": False, "qk_ln": False, "softmax_scale": None}
    attention.update(changes.pop("attn_config", {}))
    return {"architectures": ["MPTForCausalLM"], "model_type": "mpt", "d_model": 32, "n_heads": 4, "n_layers": 2,
            "vocab_size": 72, "expansion_ratio": 4, "max_seq_len": 128, "no_bias": True, "logit_scale": None,
            "learned_pos_emb": True, "norm_type": "low_precision_layernorm", "attn_config": attention, **changes}


def falcon(**changes):
    return {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 32,
            "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 72, "alibi": False, "bias": False,
            "layer_norm_epsilon": 1e-5, "multi_query": True, "new_decoder_architecture": False,
            "parallel_attn": True, "max_position_embeddings": 128, **changes}


def gemma3(**changes):
    return {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 40, "head_dim": 16,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
            "vocab_size": 72, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24,
            "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 12, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 256, **changes}


def gemma2(**changes):
    return {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_size": 40, "head_dim": 16,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
            "vocab_size": 72, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24,
            "rope_theta": 1e4, "sliding_window": 12, "rms_norm_eps": 1e-6, "max_position_embeddings": 256,
            "attn_logit_softcapping": 2.0, "final_logit_softcapping": 6.0, **changes}


MODELS = {
    "mpt": mpt(),
    "mpt-six-heads": mpt(d_model=48, n_heads=6, attn_config={"alibi_bias_max": 4}),
    "mpt-clipped": mpt(attn_config={"clip_qkv": 0.75, "softmax_scale": 0.5}),
    "falcon-7b": falcon(hidden_size=48, num_attention_heads=6),
    "falcon-7b-biased": falcon(bias=True, rope_theta=500.0),
    "falcon-40b": falcon(hidden_size=64, num_attention_heads=8, num_kv_heads=2, new_decoder_architecture=True),
    "falcon-11b": falcon(num_kv_heads=2, new_decoder_architecture=True, num_ln_in_parallel_attn=1,
                         ffn_hidden_size=80, tie_word_embeddings=False),
    "falcon-rw": falcon(alibi=True, bias=True, multi_query=False, parallel_attn=False),
    "falcon-rw-six-heads": falcon(hidden_size=48, num_attention_heads=6, alibi=True, bias=True, multi_query=False,
                                  parallel_attn=False),
    "falcon-rw-sixteen-heads": falcon(hidden_size=64, num_attention_heads=16, alibi=True, bias=True,
                                      multi_query=False, parallel_attn=False, max_position_embeddings=512),
    "gemma3": gemma3(layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]),
    "gemma3-scaled": gemma3(sliding_window_pattern=2, rope_scaling={"rope_type": "linear", "factor": 8.0}),
    "gemma2": gemma2(),
}


def prompt(name):
    count = LONG[name][-1] + 1 if name in LONG else TOKENS
    return [int((value + 1.0) * 35.0) for value in stream(seed_of(name), count)]


def as_meant(model, config):
    """Hands MPT's alibi_bias_max on to what computes the slopes."""
    if config["model_type"] == "mpt":
        model = model.transformer
        bias_max = config["attn_config"]["alibi_bias_max"]
        model.build_mpt_alibi_tensor = functools.partial(model.build_mpt_alibi_tensor, alibi_bias_max=bias_max)


def write(name, config):
    """One model's file."""
    torch.manual_seed(0)
    hub = json.loads(json.dumps(config))
    fields = {key: value for key, value in hub.items() if key not in ("architectures", "model_type")}
    read = transformers.CONFIG_MAPPING[config["model_type"]](**fields)
    read.architectures = config["architectures"]
    attention = "sdpa" if config["model_type"] == "falcon" else "eager"
    model = transformers.AutoModelForCausalLM.from_config(read, attn_implementation=attention).double().eval()
    as_meant(model, config)
    state = model.state_dict()
    tied = getattr(read, "tie_word_embeddings", True)
    centre = 0.0 if "gemma" in name else 1.0
    tensors = {}
    for tensor, value in state.items():
        if tensor == "lm_head.weight" and tied:
            continue
        tensors[tensor] = list(value.shape)
        value.copy_(torch.from_numpy(numbers(tensor, tuple(value.shape), centre)).double())
    model.tie_weights()
    tokens = prompt(name)
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    rows = {str(at): [float(f"{x:.7g}") for x in logits[at].tolist()] for at in POSITIONS + LONG.get(name, [])}
    saved = json.loads(read.to_json_string(use_diff=False))
    saved["architectures"] = config["architectures"]
    saved["vocab_size"] = config["vocab_size"]
    whole = {"config": hub, "saved": saved, "norm_centre": centre, "tensors": tensors, "tokens": tokens, "logits": rows}
    path = pathlib.Path(__file__).parent / f"{name}.json"
    path.write_text(json.dumps(whole, separators=(",", ":"), sort_keys=True).replace('},"', '},\n"') + "\n")
    print(name, sum(int(np.prod(shape)) for shape in tensors.values()), "numbers,", path.stat().st_size, "bytes")


if __name__ == "__main__":
    print("transformers", transformers.__version__, "torch", torch.__version__)
    with np.errstate(over="ignore"):
        for name, config in MODELS.items():
            write(name, config)
