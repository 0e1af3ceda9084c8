"""The local policy, around a tiny model with random weights."""

from __future__ import annotations

import pytest
import torch

from lethe_env.agents.local import LocalPolicy

OBSERVATION = {"task": "softmax/softmax", "prompt": "Rewrite this.", "feedback": ""}
SOURCE = "class ModelNew: pass\n"
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"


@pytest.mark.parametrize("template", [None, TEMPLATE])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_noise_is_answered_with_a_comment(language_model, tokenizer, template, temperature):
    tokenizer.chat_template = template
    policy = LocalPolicy(
        model=language_model, tokenizer=tokenizer, max_new_tokens=8, temperature=temperature
    )
    assert policy.act(OBSERVATION).startswith("# no source text: ")


def test_code_in_the_answer_is_found_and_the_question_is_not_part_of_it(
    language_model, tokenizer, monkeypatch
):
    asked = []

    def generate(input_ids, **settings):
        asked.append((tokenizer.decode(input_ids[0]), settings))
        answer = tokenizer(f"Here:\n```python\n{SOURCE}```", return_tensors="pt")["input_ids"]
        return torch.cat([input_ids, answer], dim=1)

    monkeypatch.setattr(language_model, "generate", generate)
    tokenizer.chat_template = TEMPLATE
    policy = LocalPolicy(model=language_model, tokenizer=tokenizer, max_seconds=5.0)
    assert policy.act(OBSERVATION) == SOURCE
    text, settings = asked[0]
    assert text.endswith("<user>Rewrite this.")
    assert "<assistant>```python" in text
    assert settings["max_time"] == 5.0
