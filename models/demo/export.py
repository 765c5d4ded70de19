"""Writes a trained network as a Hugging Face folder: what any engine that reads LlamaForCausalLM loads."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from network import Shape
from prompts import CHAT_TEMPLATE, END, PAD, SPECIAL


def write(folder: Path, shape: Shape, params: dict, tokenizer: Tokenizer) -> None:
    """config, generation_config, tokenizer, tokenizer_config and bf16 weights."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: np.asarray(value).astype(ml_dtypes.bfloat16) for name, value in params.items() if name.startswith("model.")}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))

    def dump(name: str, value: dict) -> None:
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")

    dump("config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": shape.vocab, "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate, "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim, "hidden_act": "silu", "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta, "max_position_embeddings": shape.context, "tie_word_embeddings": True, "attention_bias": False,
        "mlp_bias": False, "eos_token_id": END, "pad_token_id": PAD, "torch_dtype": "bfloat16", "use_cache": True,
    })
    dump("generation_config.json", {"do_sample": False, "eos_token_id": END, "pad_token_id": PAD})
    dump("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": shape.context, "eos_token": SPECIAL[END], "pad_token": SPECIAL[PAD],
        "add_bos_token": False, "clean_up_tokenization_spaces": False, "chat_template": CHAT_TEMPLATE,
    })
