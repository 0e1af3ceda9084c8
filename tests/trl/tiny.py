"""A policy of a few thousand parameters over bytes, made in the process, and what scripts it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes and the marks of a chat, with the template of Qwen3, which knows tools."""
    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {word: number for number, word in enumerate(words)}
    model = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    model.add_special_tokens(SPECIAL)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=model,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        padding_side="left",
    )
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    fast.chat_template = template.read_text()
    return fast


def policy(words: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """One layer of random weights."""
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(words),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=16384,
            pad_token_id=words.pad_token_id,
            eos_token_id=words.eos_token_id,
            bos_token_id=None,
        )
    )


class Scripted(trl.GRPOTrainer):
    """Replaces sampling: `script(index, prompt)` says what each rollout writes."""

    def _generate_single_turn(self, prompt_ids, *_, **__):
        written = []
        for index, ids in enumerate(prompt_ids):
            text = self.script(index, self.processing_class.decode(ids))
            written.append(self.processing_class(f"{text}{SPECIAL[2]}")["input_ids"])
        return written, None


def tool_call(source: str) -> str:
    call = {"name": "submit_kernel", "arguments": {"source": source}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
