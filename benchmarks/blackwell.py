"""How exact the native stages of the gated-delta backward are, executed on the virtual GPU.

python benchmarks/blackwell.py --tokens 2048
"""

from __future__ import annotations

import argparse
import sys

import torch

from lethe_env.kernels.gated_delta import chunked, stages
from lethe_env.kernels.gated_delta.blackwell.compilation import (
    CHUNK,
    KEYS,
    VALUES,
    compile_reverse_state_scan,
)
from lethe_env.kernels.gated_delta.blackwell.native_stages import reverse_state_scan
from lethe_env.vgpu.cute.function import VirtualFunction


def scan_inputs(tokens: int, values: int) -> list[torch.Tensor]:
    """What K#1 gets in the backward of a Gated DeltaNet-2 of one head, in float64."""
    generator = torch.Generator().manual_seed(tokens)

    def draw(width: int) -> torch.Tensor:
        return torch.randn(1, tokens, 1, width, generator=generator, dtype=torch.float64)

    q, k = (torch.nn.functional.normalize(draw(KEYS), dim=-1) for _ in range(2))
    g, b, w = -draw(KEYS).abs() / CHUNK, draw(KEYS).sigmoid(), draw(values).sigmoid()
    _, final, saved = chunked.chunked_forward(q, k, draw(values), g, b, w)
    output = chunked.split(draw(values), CHUNK)
    _, local = stages.output_adjoint(output, saved.pairs.attention, saved.scan.updates)
    return [
        saved.q * saved.decay.prefix.exp(),
        saved.k * saved.decay.suffix.exp(),
        saved.erase_transformed,
        saved.decay.total,
        output,
        local,
        torch.randn(final.shape, generator=generator, dtype=torch.float64),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048, help="of the sequence")
    tokens = parser.parse_args().tokens
    print(f"K#1, {tokens} tokens, K = {KEYS}: worst error over the largest element of the truth")
    print("| V | dh | dU | dS₀ |\n|---|---|---|---|")
    for values in VALUES:
        print(f"V = {values}: compiling", file=sys.stderr)
        run = VirtualFunction(compile_reverse_state_scan(values))
        given = scan_inputs(tokens, values)
        exact = stages.reverse_state_scan(*given)
        found = reverse_state_scan(run, *given)
        errors = [
            float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, exact, strict=True)
        ]
        print(f"| {values} |" + "".join(f" {error:.1e} |" for error in errors))
        for finding in run.session.findings:
            print(finding, file=sys.stderr)


if __name__ == "__main__":
    main()
