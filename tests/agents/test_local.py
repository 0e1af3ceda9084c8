"""The local policy, around a tiny model with random weights."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lethe_env.agents.local import LocalPolicy

OBSERVATION = {"task": "softmax/softmax", "prompt": "Rewrite this.", "feedback": ""}
SOURCE = "class ModelNew: pass\n"
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def tokenizer():
    alphabet = {
        byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    made = Tokenizer(models.BPE(vocab={**alphabet, "<end>": len(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


@pytest.fixture(scope="module")
def model(tokenizer):
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8192,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config)


@pytest.mark.parametrize("template", [None, TEMPLATE])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_noise_is_answered_with_a_comment(model, tokenizer, template, temperature):
    tokenizer.chat_template = template
    policy = LocalPolicy(
        model=model, tokenizer=tokenizer, max_new_tokens=8, temperature=temperature
    )
    assert policy.act(OBSERVATION).startswith("# no source text: ")


def test_code_in_the_answer_is_found_and_the_question_is_not_part_of_it(
    model, tokenizer, monkeypatch
):
    asked = []

    def generate(input_ids, **settings):
        asked.append((tokenizer.decode(input_ids[0]), settings))
        answer = tokenizer(f"Here:\n```python\n{SOURCE}```", return_tensors="pt")["input_ids"]
        return torch.cat([input_ids, answer], dim=1)

    monkeypatch.setattr(model, "generate", generate)
    tokenizer.chat_template = TEMPLATE
    policy = LocalPolicy(model=model, tokenizer=tokenizer, max_seconds=5.0)
    assert policy.act(OBSERVATION) == SOURCE
    text, settings = asked[0]
    assert text.endswith("<user>Rewrite this.")
    assert "<assistant>```python" in text
    assert settings["max_time"] == 5.0
