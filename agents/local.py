"""A policy from a local transformers model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import chat

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(slots=True, kw_only=True)
class LocalPolicy:
    """Generates with a causal language model in this process."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    example: bool = True
    """Show one worked example first."""
    temperature: float = 1.0
    """Zero decodes greedily."""
    max_new_tokens: int = 4096
    max_seconds: float = 600.0
    """Generation stops here, whatever has been written by then."""

    @classmethod
    def load(cls, name: str, **settings: Any) -> LocalPolicy:
        """Load a model by name or folder, onto a GPU if there is one.

        Args:
            name: as in `AutoModelForCausalLM.from_pretrained`.
            settings: other fields of the policy.

        Raises:
            OSError: there is no such model.
        """
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = AutoModelForCausalLM.from_pretrained(name, dtype="auto").to(device)
        return cls(model=model, tokenizer=AutoTokenizer.from_pretrained(name), **settings)

    def act(self, observation: Mapping[str, Any]) -> str:
        """The source text in the model's answer, or a comment that says why there is none."""
        encoded = self.tokenizer(self._text(observation), return_tensors="pt")
        encoded = encoded.to(self.model.device)
        prompt_tokens = encoded["input_ids"].shape[1]
        sampling = {"do_sample": True, "temperature": self.temperature}
        generated = self.model.generate(
            **encoded,
            **(sampling if self.temperature > 0 else {"do_sample": False}),
            max_new_tokens=self.max_new_tokens,
            max_time=self.max_seconds,
            pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
        )
        completion = self.tokenizer.decode(generated[0, prompt_tokens:], skip_special_tokens=True)
        return chat.answer(completion)

    def _text(self, observation: Mapping[str, Any]) -> str:
        turns = chat.messages(observation, example=self.example)
        if self.tokenizer.chat_template is None:
            return "\n\n".join(turn["content"] for turn in turns) + "\n\n"
        text: str = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        return text
