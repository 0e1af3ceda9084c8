"""A small policy over the kernel grammar: a transformer whose tokens are an author's choices.

Its prompt is the task's id, one token; its answer names one option of each choice. The grammar is
part of the model: a token that cannot come next has no probability, so every answer is a sentence,
and what it is trained on and what it samples from are the same distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.modeling_outputs import CausalLMOutputWithPast

from .grammar import Problem, parse, problem_for

PAD, END = "<pad>", "<end>"
FORBIDDEN = -1e4
"""Logit of a token that cannot come next: its probability is exactly zero in every dtype, and its
logarithm is still finite, which entropies need."""


class Vocabulary:
    """Words of the grammar as numbers: padding, the end, the options, and last the tasks."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        words = [word for p in problems for choice in p.choices for word in choice.words]
        tasks = [problem.task for problem in problems]
        self.tokens = tuple(dict.fromkeys([PAD, END, *words, *tasks]))
        self.ids = {token: index for index, token in enumerate(self.tokens)}
        self.first_task = self.ids[tasks[0]]

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """One token per word; words are separated by spaces."""
        tokenizer = Tokenizer(models.WordLevel(self.ids, unk_token=PAD))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, padding_side="left"
        )

    def successors(self) -> Tensor:
        """What may follow what.

        Returns:
            bool tensor (tasks, tokens, tokens): whether, in a sentence for a task, the last token
            may come right after the middle one. Anything may follow padding.
        """
        size = len(self.tokens)
        allowed = torch.zeros(len(self.problems), size, size, dtype=torch.bool)
        allowed[:, self.ids[PAD], :] = True
        allowed[:, self.ids[END], self.ids[PAD]] = True
        for index, problem in enumerate(self.problems):
            before = [problem.task]
            for words in [*(choice.words for choice in problem.choices), (END,)]:
                for word in before:
                    allowed[index, self.ids[word], [self.ids[after] for after in words]] = True
                before = list(words)
        return allowed


class GrammarModel(LlamaForCausalLM):
    """A Llama that speaks the grammar and nothing else."""

    def __init__(self, config: LlamaConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config)
        self.first_task = vocabulary.first_task
        self.register_buffer("successors", vocabulary.successors(), persistent=False)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **settings: Any
    ) -> CausalLMOutputWithPast:
        """Logits with every impossible successor ruled out; `input_ids` must begin at the task."""
        output = super().forward(input_ids=input_ids, attention_mask=attention_mask, **settings)
        task = input_ids.amax(dim=1) - self.first_task
        kept = input_ids[:, -output.logits.shape[1] :]
        allowed = self.successors[task[:, None], kept]
        output.logits = output.logits.masked_fill(~allowed, FORBIDDEN)
        return output


def new_model(vocabulary: Vocabulary, seed: int, hidden_size: int = 64) -> GrammarModel:
    """A model with random weights, close to uniform over the options of each choice."""
    config = LlamaConfig(
        vocab_size=len(vocabulary.tokens),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        pad_token_id=vocabulary.ids[PAD],
        eos_token_id=vocabulary.ids[END],
        bos_token_id=None,
        use_cache=False,  # a step needs the whole sentence to know its task
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = GrammarModel(config, vocabulary)
    nn.Module.train(model)
    return model


class GrammarPolicy:
    """Acts with a grammar model."""

    def __init__(self, model: GrammarModel, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model, self.tokenizer = model, tokenizer

    def act(self, observation: Mapping[str, Any]) -> str:
        """Sample a sentence and render it.

        Raises:
            GrammarError: the grammar does not cover the task.
        """
        problem = problem_for(observation["task"])
        return problem.render(parse(problem, self.sentences(problem.task, 1)[0]))

    def sentences(self, task: str, count: int) -> list[str]:
        """Sample sentences for one task."""
        prompt = self.tokenizer([task], return_tensors="pt")["input_ids"].to(self.model.device)
        generated = self.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=True,
            num_return_sequences=count,
            max_new_tokens=1 + len(problem_for(task).choices),
        )
        return list(self.tokenizer.batch_decode(generated[:, 1:], skip_special_tokens=True))
