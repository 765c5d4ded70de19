"""Writes expected.json: what transformers' `apply_chat_template` makes of awkward conversations with the
templates beside this file; and expected_tools.json, the same of conversations with tools. They were written after what the public templates of these models do, without their
parts for tools (`*_tools.jinja` have some); those of Qwen, SmolLM2, Mistral, Phi, Zephyr and DeepSeek (Apache-2.0 or MIT) keep the originals'
turns of phrase, which are what there is to get wrong.

    pip install transformers==5.24.0 && python engine/tests/templates/generate.py

A conversation that a template refuses stands there joined, as RelServe sends it then: neighbours of one role
in one message, a blank line between; where that is refused too, a system message and the user's behind it.
"""

import json
from pathlib import Path

from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
CHATML = ["<|im_start|>", "<|im_end|>"]
LLAMA = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
GEMMA = ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]
PHI = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"]
# Per template: BOS, EOS, and tokens that the model has ids for.
MODELS = {
    "llama3": ("<|begin_of_text|>", "<|eot_id|>", LLAMA),
    "llama31": ("<|begin_of_text|>", "<|eot_id|>", LLAMA),
    "qwen25": (None, "<|im_end|>", [*CHATML, "<tool_call>", "</tool_call>"]),
    "qwen3": (None, "<|im_end|>", [*CHATML, "<think>", "</think>", "<tool_response>", "</tool_response>"]),
    "smollm2": ("<|im_start|>", "<|im_end|>", CHATML),
    "mistral": ("<s>", "</s>", ["<s>", "</s>", "[INST]", "[/INST]"]),
    "gemma2": ("<bos>", "<eos>", GEMMA),
    "gemma3": ("<bos>", "<eos>", GEMMA),
    "phi3": ("<s>", "<|endoftext|>", PHI),
    "deepseek_r1": (
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"],
    ),
    "zephyr": ("<s>", "</s>", ["<s>", "</s>"]),
    "command_r": (
        "<BOS_TOKEN>",
        "<|END_OF_TURN_TOKEN|>",
        ["<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"],
    ),
}
# The same of templates that write tools.
TOOL_MODELS = {
    "qwen25_tools": (None, "<|im_end|>", [*CHATML, "<tool_call>", "</tool_call>"]),
    "mistral_tools": (
        "<s>",
        "</s>",
        ["<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"],
    ),
}
SPACE = " \t\u00a0\u3000\r\n\u001c"
QUOTES = """He said "it's \\"so\\"", '''no''', `{{ messages }}` {% if x %}\\n{# c #} \\ <b>&amp;</b>"""
TOOL = '<tool_call>\n{"name": "find", "arguments": {"text": "a \\"b\\" <c>", "n": [1, {}]}}\n</tool_call>'
ANSWER = "<tool_response>\n{\"found\": null}\n</tool_response>"
THOUGHT = "\n<think>\nHm, \"Paris\"?\n</think>\n\nParis.\n"
CONVERSATIONS = [
    [("user", "Hello")],
    [("user", "\nTell me.\n")],
    [("user", f"{SPACE}a  b{SPACE}")],
    [("user", "")],
    [("system", ""), ("user", "Hi")],
    [("system", " \n "), ("user", "Hi")],
    [("system", "\n Be brief.\n"), ("user", " Why? ")],
    [("system", "Be brief."), ("user", "Why?"), ("assistant", "So."), ("user", "Oh?")],
    [("system", f"{SPACE}s{SPACE}"), ("user", f"{SPACE}u{SPACE}"), ("assistant", f"{SPACE}a{SPACE}"), ("user", f"{SPACE}v")],
    [("user", "one\n\n\ntwo\r\n\r\nthree\n"), ("assistant", "\n\n1.\n2.\n\n"), ("user", "\n")],
    [("system", QUOTES), ("user", QUOTES)],
    [("user", f'"{QUOTES}"'), ("assistant", f"'{QUOTES}'"), ("user", "'\"")],
    [("user", "é e\u0301 漢字 \U0001f600\u200d\U0001f680 \u200bz\u200b \ufeff \U000f0000 \u2028")],
    [("system", "Call tools."), ("user", "Find it."), ("assistant", TOOL), ("user", ANSWER)],
    [("user", "Find it."), ("assistant", "\n" + TOOL + "\n"), ("user", ANSWER), ("assistant", "\n\nNull.\n"), ("user", "So?")],
    [("user", "Where?"), ("assistant", THOUGHT), ("user", "Sure?")],
    [("user", "Where?"), ("assistant", THOUGHT), ("user", ANSWER), ("assistant", "</think>a</think> b")],
    [("user", "Where?"), ("assistant", "Paris. ")],
    [("user", " one "), ("user", " two ")],
    [("system", " a "), ("system", " b "), ("user", " c ")],
    [("assistant", " Welcome. "), ("user", " Hi ")],
    [("user", " Hi "), ("system", " Be brief. "), ("user", " Why? ")],
]


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Finds a text \u2013 <b>fast</b>.",
            "parameters": {
                "type": "object",
                "required": ["text"],
                "properties": {"text": {"type": "string", "enum": ["z", "a"]}, "count": {"type": "integer", "default": 1.5}},
            },
        },
    },
    {"type": "function", "function": {"name": "stop"}},
]


def call(name, call_id, **arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


RESULT = {"role": "tool", "tool_call_id": "abcdefgh1", "name": "find"}
TOOL_CONVERSATIONS = [
    [{"role": "user", "content": "Find it."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Find it. "}],
    [
        {"role": "user", "content": "Find it."},
        {"role": "assistant", "content": "", "tool_calls": [call("find", "abcdefgh1", text='a "b" <c>', count=[1, {}, None, True])]},
        {**RESULT, "content": " [1, 2] \n"},
    ],
    [
        {"role": "user", "content": "Find both."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call("find", "abcdefgh1", text="\u00e9"), call("stop", "abcdefgh2")]},
        {**RESULT, "content": "one"},
        {**RESULT, "tool_call_id": "abcdefgh2", "name": "stop", "content": "two <tool_call>"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Again."},
    ],
]


def joined(messages, leads):
    turns = []
    for role, content in messages:
        before = turns[-1][0] if turns else None
        if before == role or (leads and (before, role) == ("system", "user")):
            turns[-1] = (role, turns[-1][1] + "\n\n" + content)
        else:
            turns.append((role, content))
    return turns


def rendered(tokenizer, template, messages):
    for turns in [messages, joined(messages, False), joined(messages, True)]:
        turns = [{"role": role, "content": content} for role, content in turns]
        try:
            options = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
            return tokenizer.apply_chat_template(turns, chat_template=template, **options)
        except TemplateError:
            pass
    return None


def main():
    found = {}
    for name, (bos, eos, special) in MODELS.items():
        inner = Tokenizer(models.BPE())
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=bos, eos_token=eos)
        template = (HERE / f"{name}.jinja").read_text()
        texts = [rendered(tokenizer, template, messages) for messages in CONVERSATIONS]
        found[name] = {"bos_token": bos, "eos_token": eos, "special": special, "rendered": texts}
    whole = {"conversations": CONVERSATIONS, "templates": found}
    (HERE / "expected.json").write_text(json.dumps(whole, indent=1, ensure_ascii=True) + "\n")
    with_tools = {}
    for name, (bos, eos, special) in TOOL_MODELS.items():
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token=bos, eos_token=eos)
        template = (HERE / f"{name}.jinja").read_text()
        options = {"tokenize": False, "add_generation_prompt": True, "chat_template": template, "tools": TOOLS}
        texts = [tokenizer.apply_chat_template(messages, **options) for messages in TOOL_CONVERSATIONS]
        with_tools[name] = {"bos_token": bos, "eos_token": eos, "special": special, "rendered": texts}
    whole = {"tools": TOOLS, "conversations": TOOL_CONVERSATIONS, "templates": with_tools}
    (HERE / "expected_tools.json").write_text(json.dumps(whole, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
