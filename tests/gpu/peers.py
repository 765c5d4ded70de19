"""Hugging Face's transformers on the same shapes: logits beside ours, and how fast its continuous batching is.

    peers.py logits DEVICE DIR...          # our logits in DIR.logits, the prompt's tokens in DIR.tokens (example `logits`)
    peers.py weights CONFIG.json DIR [DEVICE] # random weights of a shape into DIR/model.safetensors
    peers.py speed CONFIG.json [DEVICE]    # random weights of a shape: prefill of 2k to 8k tokens, decode of 1 to 128 rows

`logits` fails where ours are further from single precision than twice what torch's own bf16 is, or, where the checkpoint is in
single precision, than 1e-4 of the largest.
"""

import ast
import json
import statistics
import sys
import time

import numpy
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig
from transformers.utils import logging


logging.disable_progress_bar()


def logits(folder, device):
    tokens = torch.tensor([ast.literal_eval(open(f"{folder}.tokens").read())], device=device)
    stored = getattr(torch, json.load(open(f"{folder}/config.json"))["torch_dtype"])

    def of(dtype):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).to(device).eval()
        with torch.no_grad():
            return model(tokens).logits[0].float().cpu()

    exact = of(torch.float32)
    ours = torch.from_numpy(numpy.fromfile(f"{folder}.logits", dtype=numpy.float32)).reshape(exact.shape[0], -1)
    ours = ours[:, : exact.shape[1]]
    largest = exact.abs().max()
    far = ((ours - exact).abs().max() / largest).item()
    limit = 1e-4 if stored == torch.float32 else 2 * ((of(stored) - exact).abs().max() / largest).item()
    same = (ours.argmax(1) == exact.argmax(1)).float().mean().item()
    verdict = "ok" if far <= limit else "TOO FAR"
    print(f"{folder}: {far:.2e} of the largest logit, limit {limit:.2e}, highest token the same at {same:.1%}: {verdict}")
    return far <= limit


def weights(file, folder, device):
    """As the example `checkpoint` draws them, which takes minutes for billions: matrices of about unit gain, norms about 1, small biases."""
    with torch.device("meta"):
        shapes = AutoModelForCausalLM.from_config(AutoConfig.for_model(**json.load(open(file)))).state_dict()

    def drawn(name, shape):
        middle, spread = (0, 0.1) if name.endswith(".bias") else (1, 0.2) if len(shape) == 1 else (0, 1)
        if name.endswith("proj.weight"):
            spread = (3 / shape[-1]) ** 0.5
        number = torch.empty(shape, dtype=torch.bfloat16, device=device)
        return number.uniform_(middle - spread, middle + spread).cpu()

    torch.manual_seed(1)
    tensors = {name: drawn(name, tensor.shape) for name, tensor in shapes.items()}
    save_file(tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})


def seconds(manager, prompts, new_tokens):
    """Median time of three runs behind one that warms up: from the requests to their last token."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        manager.add_requests(prompts, max_new_tokens=new_tokens)
        left = len(prompts)
        while left:
            result = manager.get_result(timeout=1)
            assert result or manager.is_running(), "it has stopped"
            if result and result.is_finished():
                assert len(result.generated_tokens) == new_tokens, result.error
                left -= 1
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def speed(file, device, shapes):
    config = AutoConfig.for_model(**json.load(open(file)))
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()

    def prompts(rows, tokens):
        return [[10 + (7 * i + 131 * row) % 250 for i in range(tokens)] for row in range(rows)]

    settings = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
    # A prompt that comes again is to be computed again.
    batching = ContinuousBatchingConfig(allow_block_sharing=False, **shapes["batching"])
    print(f"transformers' continuous batching, {file}")
    with model.continuous_batching_context_manager(settings, timeout=5, continuous_batching_config=batching) as manager:
        for rows, context, more in shapes["decode"]:
            both = [seconds(manager, prompts(rows, context), new_tokens) for new_tokens in (1, 1 + more)]
            step = (both[1] - both[0]) / more
            print(f"  decode {rows:>3} rows of {context:>4} tokens: {1e3 * step:8.3f} ms a step", flush=True)
        for tokens in shapes["prefill"]:
            print(f"  prefill {tokens:>4} tokens: {1e3 * seconds(manager, prompts(1, tokens), 1):8.2f} ms", flush=True)


def main():
    match sys.argv[1:]:
        case ["logits", device, *folders]:
            # All of them are printed, also behind one that is too far.
            sys.exit(0 if all([logits(folder, device) for folder in folders]) else 1)
        case ["weights", file, folder, *device]:
            weights(file, folder, (device or ["cuda"])[0])
        case ["speed", file, *device]:
            few = {"num_blocks": 16, "max_batch_tokens": 256}
            small = {"decode": [(2, 24, 4)], "prefill": [48], "batching": few}
            decode, prefill = [(rows, 512, 32) for rows in (1, 8, 32, 128)], [2048, 4096, 8192]
            large = {"decode": decode, "prefill": prefill, "batching": {"max_batch_tokens": max(prefill) + 1}}
            device = (device or ["cuda"])[0]
            speed(file, device, small if device == "cpu" else large)
        case _:
            sys.exit(__doc__)


main()
