"""Seeds of PyTorch's own generators."""

from __future__ import annotations

import torch


def seed_generators(seed: int) -> None:
    """Seed what a reference may draw from, as `torch.manual_seed` does.

    Without a GPU that function notes the seed for devices that never come, each time with a stack
    trace, which takes a millisecond and is kept for good.
    """
    if torch.cuda.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
