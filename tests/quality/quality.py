"""How far a server's answers are from those of transformers in f32, for the same weights and the same prompts.

usage: quality.py reference MODEL FOLDER       answers of transformers, kept in FOLDER
       quality.py ask FORMAT FOLDER            those of the server that RELSERVE_BASE_URL names, a line of the table
"""

import json
import os
import pathlib
import sys
import time
import urllib.error
import urllib.request

import numpy

from prompts import prompts

ANSWER_TOKENS = 16
# The likeliest tokens that a server tells.
TOLD = 20
# Prompts that are asked together: as rows of a column are, and those that are scored so that their log probabilities
# fit a reply (131,072: 10 of 440 tokens have 92,400).
ROWS = 50
SCORED = 10
# What a format of this file may differ by: the least share of tokens that are the same, and the greatest mean divergence in
# nats. Two to four times what was measured (docs/PERFORMANCE.md), so that another processor's order of sums is none; more
# where some round activations to bf16.
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
LIMITS = {
    "f32": (0.999, 1e-8), "stored-f32": (0.999, 1e-8), "stored-f16": (0.985, 2e-4), "stored-bf16": (0.97, 1e-3),
    "stored": (0.97, 1e-3), "q8": (0.94, 0.0055), "q8-wide": (0.84, 0.05), "q4": (0.93, 0.008), "kv-q8": (0.93, 0.008),
    "q8-kv-q8": (0.88, 0.02), "q4-kv-q8": (0.90, 0.015),
}


def reference(model, folder):
    """Greedy answers, the logits of each of their tokens, and the prompts' ids."""
    import torch
    import transformers

    path = pathlib.Path(model)
    at, file = (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})
    tokenizer = transformers.AutoTokenizer.from_pretrained(at, **file)
    network = transformers.AutoModelForCausalLM.from_pretrained(at, dtype=torch.float32, **file).eval()
    # The same weights as a server reads them without rounding any; what was a GGUF file is none any more.
    network.hf_quantizer = None
    if hasattr(network.config, "quantization_config"):
        del network.config.quantization_config
    network.save_pretrained(folder / "f32")
    tokenizer.save_pretrained(folder / "f32")
    asked = []
    for kind, text in prompts():
        if kind == "chat":
            ids = tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False)
        else:
            ids = tokenizer(text)["input_ids"]
        asked.append(list(map(int, ids)))
    end = tokenizer.eos_token_id
    answers, logits = [[]] * len(asked), [[]] * len(asked)
    began = time.monotonic()
    # Prompts of about one length are read together, with what is missing in front of them masked.
    order = sorted(range(len(asked)), key=lambda at: len(asked[at]))
    for first in range(0, len(order), SCORED):
        batch = order[first:first + SCORED]
        width = max(len(asked[at]) for at in batch)
        missing = [width - len(asked[at]) for at in batch]
        with torch.inference_mode():
            said = network.generate(
                torch.tensor([[end] * less + asked[at] for less, at in zip(missing, batch)]),
                attention_mask=torch.tensor([[0] * less + [1] * (width - less) for less in missing]),
                do_sample=False, max_new_tokens=ANSWER_TOKENS, eos_token_id=end, pad_token_id=end,
                output_logits=True, return_dict_in_generate=True)
        steps = torch.stack(said.logits).numpy()
        for row, at in enumerate(batch):
            answer = said.sequences[row, width:].tolist()
            answers[at] = answer[:answer.index(end) + 1] if end in answer else answer
            logits[at] = steps[:len(answers[at]), row]
    rows = numpy.concatenate(logits)
    numpy.save(folder / "logits.npy", rows)
    (folder / "answers.json").write_text(json.dumps({"prompts": asked, "answers": answers, "model": path.name}))
    lengths = sorted(map(len, asked))
    print(f"{path.name} by transformers {transformers.__version__} in f32: {len(asked)} prompts of {lengths[0]} to {lengths[-1]} tokens"
          f" (median {lengths[len(lengths) // 2]}), {len(rows)} tokens of answers, {time.monotonic() - began:.0f} s\n")
    print("| format | first token | answers | tokens | mean KL | greatest KL | greatest margin | processor s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)


def post(path, body):
    request = urllib.request.Request(
        os.environ["RELSERVE_BASE_URL"] + path, json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {os.environ['RELSERVE_API_KEY']}"})
    try:
        with urllib.request.urlopen(request, timeout=900) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        sys.exit(f"{path}: {error.code} {error.read().decode()}")


def check_tokens(model, asked):
    """The server makes the same tokens of the same prompts, its chat template included."""
    for (kind, text), ids in zip(prompts(), asked, strict=True):
        body = {"messages": [{"role": "user", "content": text}]} if kind == "chat" else {"prompt": text}
        tokens = post("/tokenize", {"model": model, **body})["tokens"]
        if tokens != ids:
            sys.exit(f"the server's tokens of {text!r} are\n{tokens}\nand those of transformers\n{ids}")


def complete(model, ids, together, **more):
    """Each prompt's choice, of requests in turn."""
    for first in range(0, len(ids), together):
        body = {"model": model, "prompt": ids[first:first + together], "temperature": 0, **more}
        yield from sorted(post("/v1/completions", body)["choices"], key=lambda choice: choice["index"])


def divergence(logits, told):
    """KL of what the server tells of a position from the reference, in nats: each token that it tells, and all others
    as one. A bound from below, which the likeliest twenty of a greedy answer leave little of."""
    logits = logits.astype(numpy.float64)
    logits -= logits.max()
    likely = logits - numpy.log(numpy.exp(logits).sum())
    ours = numpy.array(list(told.values()), dtype=numpy.float64)
    theirs = likely[list(told)]
    left, left_theirs = (max(1 - numpy.exp(those).sum(), 1e-12) for those in (ours, theirs))
    kl = (numpy.exp(theirs) * (theirs - ours)).sum() + left_theirs * numpy.log(left_theirs / left)
    return max(kl, 0.0)


def processor_seconds():
    """Of the server, where the system tells them."""
    try:
        fields = pathlib.Path(f"/proc/{os.environ['SERVER']}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, KeyError):
        return float("nan")


def ask(name, folder):
    with urllib.request.urlopen(urllib.request.Request(
            os.environ["RELSERVE_BASE_URL"] + "/v1/models",
            headers={"authorization": f"Bearer {os.environ['RELSERVE_API_KEY']}"})) as reply:
        model = json.load(reply)["data"][0]["id"]
    kept = json.loads((folder / "answers.json").read_text())
    asked, answers = kept["prompts"], kept["answers"]
    logits = numpy.load(folder / "logits.npy", mmap_mode="r")
    check_tokens(model, asked)
    starts = numpy.cumsum([0] + [len(answer) for answer in answers])

    # Its own answers: as long as they are the reference's, each token is an answer to the same question.
    before = processor_seconds()
    more = {"max_tokens": ANSWER_TOKENS, "logprobs": TOLD, "return_tokens_as_token_ids": True, "return_token_ids": True}
    own = list(complete(model, asked, ROWS, **more))
    seconds = processor_seconds() - before
    first = whole = same = 0
    distances, missed, behind = [], [], []

    def judge(row, at, told, said):
        nonlocal same
        likely, right = logits[starts[row] + at], answers[row][at]
        distances.append(divergence(likely, told))
        same += said == right
        if said != right:
            missed.append(float(likely[right] - likely[said]))

    for row, (choice, answer) in enumerate(zip(own, answers, strict=True)):
        said = choice["token_ids"]
        first += said[0] == answer[0]
        whole += said == answer
        for at, told in enumerate(choice["logprobs"]["top_logprobs"]):
            told = {int(token.removeprefix("token_id:")): value for token, value in told.items()}
            judge(row, at, told, said[at])
            if said[at] != answer[at]:
                behind.append((row, at + 1))
                break
    # Behind a token that differs the reference's answer is a prompt that is scored: what the server would have said there.
    behind = [(row, after) for row, after in behind if after < len(answers[row])]
    scored = complete(model, [asked[row] + answers[row] for row, _ in behind], SCORED, max_tokens=1, prompt_logprobs=TOLD)
    for (row, after), choice in zip(behind, scored, strict=True):
        for at in range(after, len(answers[row])):
            told = choice["prompt_logprobs"][len(asked[row]) + at]
            likeliest = next(int(token) for token, value in told.items() if value["rank"] == 1)
            judge(row, at, {int(token): value["logprob"] for token, value in told.items()}, likeliest)
    if len(distances) != len(logits):
        sys.exit(f"{name}: {len(distances)} tokens were judged of {len(logits)}")
    share, mean = same / len(distances), float(numpy.mean(distances))
    print(f"| {name} | {first / len(asked):.1%} | {whole / len(asked):.1%} | {share:.2%} | {mean:.2g} | {max(distances):.2g} |"
          f" {max(missed, default=0):.2g} | {seconds:.0f} |".replace("%", " %"), flush=True)
    least, most = LIMITS.get(name, (0, numpy.inf)) if kept["model"] == MODEL else (0, numpy.inf)
    if share < least or mean > most:
        sys.exit(f"{name}: at least {least:.1%} of tokens should be the same, and the mean KL be {most} at most")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["reference", model, folder]:
            reference(model, pathlib.Path(folder))
        case ["ask", name, folder]:
            ask(name, pathlib.Path(folder))
        case _:
            sys.exit(__doc__)
