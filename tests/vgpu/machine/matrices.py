"""A slow model of matrices in shared memory, and of the tensor cores of sm_90 and sm_100."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from mmasim.arithmetic import fdpa

TORCH = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "e5m2": torch.float8_e5m2,
    "e4m3": torch.float8_e4m3fn,
}
SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "e5m2": 1, "e4m3": 1}


@dataclass(frozen=True)
class Matrix:
    """Where a matrix lies, as a descriptor tells it; lengths in bytes."""

    start: int
    leading: int
    stride: int
    width: int
    """Of a swizzled row: 16 is no swizzle."""
    across: bool
    """Whether neighbouring rows lie side by side."""

    def descriptor(self, modes: dict[int, int], at: int) -> int:
        """The 64 bits; the swizzle's number stands at a bit."""
        fields = self.start >> 4 | (self.leading >> 4) << 16 | (self.stride >> 4) << 32
        return fields | modes[self.width] << at

    def address(self, row: int, k: int, size: int) -> int:
        """Of the first byte of an element."""
        along, line = (row * size, k) if self.across else (k * size, row)
        if self.width == 16:
            near, far = self.leading, self.stride
            if self.across:
                near, far = far, near
            place = line // 8 * far + line % 8 * 16 + along // 16 * near + along % 16
        else:
            place = line // 8 * self.stride + line % 8 * self.width
            place += along // self.width * self.leading + along % self.width
        place += self.start
        lowest = place // 128 % (self.width // 16)
        return place ^ lowest * 16

    def read(self, memory: np.ndarray, rows: int, source: str) -> torch.Tensor:
        """The elements `[rows, 32 bytes]`."""
        size = SIZES[source]
        found = np.zeros((rows, 32), np.uint8)
        for row in range(rows):
            for k in range(32 // size):
                at = self.address(row, k, size)
                found[row, k * size : (k + 1) * size] = memory[at : at + size]
        return torch.from_numpy(found).view(TORCH[source])


def product(left, right, start, source, short=False):
    """`start + left @ right.T` as the tensor cores of sm_90 and sm_100 add it up."""
    kind = "f16" if source == "bf16" else source
    bits, rounding = (13, "RZ-E8M13") if short else (25, "RZ-FP32")
    model = fdpa.MMA_T_FDPA(bits, rounding, 32 // SIZES[source], -133, kind, kind)
    return model(left, right.T, start)
