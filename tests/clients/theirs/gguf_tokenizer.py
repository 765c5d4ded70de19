"""The tokenizer of a GGUF file, with the few calls that vLLM's tests make of one of Hugging Face's."""

import gguf
import jinja2
import tokenizers
from tokenizers import decoders, models, pre_tokenizers


class Tokenizer:
    """A byte-level BPE that cuts digits apart, as SmolLM2's does."""

    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        pieces = fields["tokenizer.ggml.tokens"].contents()
        kinds = fields["tokenizer.ggml.token_type"].contents()
        merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
        self.bpe = tokenizers.Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, merges))
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
        self.bpe.decoder = decoders.ByteLevel()
        self.bpe.add_special_tokens([p for p, kind in zip(pieces, kinds) if kind == gguf.TokenType.CONTROL])
        self.template = jinja2.Template(fields["tokenizer.chat_template"].contents())

    def __len__(self):
        return self.bpe.get_vocab_size()

    def encode(self, text, **_):
        return self.bpe.encode(text).ids

    def decode(self, ids, skip_special_tokens=False):
        return self.bpe.decode([ids] if isinstance(ids, int) else list(ids), skip_special_tokens=skip_special_tokens)

    def convert_ids_to_tokens(self, ids):
        return [self.bpe.id_to_token(each) for each in ids]

    def apply_chat_template(
        self,
        conversation,
        add_generation_prompt=False,
        tokenize=True,
        continue_final_message=False,
        **variables,
    ):
        text = self.template.render(messages=conversation, add_generation_prompt=add_generation_prompt, **variables)
        if continue_final_message:
            said = conversation[-1]["content"].strip()
            text = text[: text.rindex(said) + len(said)]
        return self.encode(text) if tokenize else text
