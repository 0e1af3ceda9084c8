"""Choices, sentences and problems: the grammar without any kernel in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Sentence = Mapping[str, str]
"""Name of each choice of one problem to the option taken."""


class GrammarError(ValueError):
    """A text that is no sentence of the grammar, or a task that the grammar does not cover."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision of a kernel's author."""

    name: str
    options: tuple[str, ...]
    """A careful one first; nothing depends on the order."""

    @property
    def words(self) -> tuple[str, ...]:
        """One word per option, `name=option`: the tokens of the small policy."""
        return tuple(f"{self.name}={option}" for option in self.options)


@dataclass(frozen=True, slots=True)
class Problem:
    """What the grammar knows about one task."""

    task: str
    """Suite id."""
    choices: tuple[Choice, ...]
    """In the order in which a sentence names them."""
    template: Callable[[Sentence], str]
    """From a sentence to source text that defines `ModelNew`."""

    def render(self, sentence: Sentence) -> str:
        """The source text that a sentence stands for.

        Raises:
            GrammarError: a choice is missing, unknown, or has no such option.
        """
        for choice in self.choices:
            if sentence.get(choice.name) not in choice.options:
                known = ", ".join(choice.options)
                given = sentence.get(choice.name, "nothing")
                raise GrammarError(f"{self.task}: {choice.name} is {given}; choose from {known}")
        unknown = sorted(set(sentence) - {choice.name for choice in self.choices})
        if unknown:
            raise GrammarError(f"{self.task}: there is no choice named {', '.join(unknown)}")
        return self.template(sentence)


def sentences(problem: Problem) -> Iterator[dict[str, str]]:
    """Every sentence of a problem, in a fixed order."""
    names = [choice.name for choice in problem.choices]
    for options in itertools.product(*(choice.options for choice in problem.choices)):
        yield dict(zip(names, options, strict=True))


def write(sentence: Sentence) -> str:
    """A sentence as text: its words, `name=option`, with spaces between them."""
    return " ".join(f"{name}={option}" for name, option in sentence.items())


def parse(problem: Problem, text: str) -> dict[str, str]:
    """The sentence that a text says.

    Raises:
        GrammarError: a word that is no `name=option` or comes twice, or a text that does not take
            exactly one option of each choice.
    """
    sentence: dict[str, str] = {}
    for word in text.split():
        name, equals, option = word.partition("=")
        if not equals or name in sentence:
            raise GrammarError(f"{problem.task}: unexpected word {word!r}")
        sentence[name] = option
    problem.render(sentence)
    return sentence
