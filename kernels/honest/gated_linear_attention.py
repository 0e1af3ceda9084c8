"""Gated linear attention by the chunkwise kernels of the gated-delta family."""

import torch.nn as nn

from ..gated_delta import gated_delta


class ModelNew(nn.Module):
    def forward(self, q, k, v, g):
        """The library wants (batch, length, heads, width)."""
        output, _ = gated_delta(*(x.transpose(1, 2) for x in (q, k, v, g)))
        return output.transpose(1, 2)
