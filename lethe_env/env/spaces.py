"""Source text as a Gymnasium space."""

from __future__ import annotations

from typing import Any

from gymnasium import Space

SOURCE_CHARACTERS = 1 << 20
"""Longest source text that the verifier reads."""

_SAMPLES = (
    "",
    "# α ≤ β\n",
    "class ModelNew(:\n",
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n",
    "def ModelNew():\n\treturn None\n",
)


class SourceText(Space[str]):
    """Any text that can be written as UTF-8, line breaks and the empty text included.

    Gymnasium's own `Text` lists its characters one by one, which takes seconds and megabytes for
    Unicode. Not being a subclass of it also makes `AsyncVectorEnv` ask for `shared_memory=False`
    instead of returning the same garbage at every step.

    Args:
        max_length: longest member, in characters.
        seed: seed of `sample`.
    """

    def __init__(self, max_length: int = SOURCE_CHARACTERS, seed: int | None = None) -> None:
        self.max_length = max_length
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text is no vector."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """One of a few short texts; random characters would all be the same nonsense."""
        fitting = [text for text in _SAMPLES if len(text) <= self.max_length]
        return fitting[int(self.np_random.integers(len(fitting)))]

    def contains(self, x: Any) -> bool:
        """Whether `x` is a member."""
        return not self.objection(x)

    def objection(self, x: Any) -> str:
        """Why `x` is not a member, empty if it is."""
        if not isinstance(x, str):
            return f"the action is {type(x).__name__}, not text"
        if len(x) > self.max_length:
            return f"the action has more than {self.max_length} characters"
        try:
            x.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"the action's character {error.start} is half of a surrogate pair"
        return ""

    def __repr__(self) -> str:
        return f"SourceText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceText) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash((type(self), self.max_length))
