"""Kernels on which Triton's interpreter and a GPU differ; run as a program, it prints JSON.

Usage: python untruths.py vgpu|interpreter
"""

import json
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl


@triton.jit
def maximum(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.maximum(tl.load(x + i), 0.0))


@triton.jit
def product(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tile = i[:, None] * N + i[None, :]
    tl.store(out + tile, tl.dot(tl.load(a + tile), tl.load(b + tile)))


@triton.jit
def total(x, out, N: tl.constexpr):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, N))))


@triton.jit
def addition(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))


@triton.jit
def exponential(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.exp(tl.load(x + i)))


@triton.jit
def unmasked_copy(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def counter(out):
    tl.store(out, tl.load(out) + 1)


@triton.jit
def copy_of_nothing(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i))


def values():
    """Results as Python floats, by name of the question."""
    results = {}
    nan = torch.tensor([float("nan")] * 32)
    out = torch.empty(32)
    maximum[(1,)](nan, out, N=32)
    results["maximum"] = out[0].item()
    a = torch.full((16, 16), 1 + 2.0**-12)
    out = torch.empty(16, 16)
    product[(1,)](a, torch.eye(16), out, N=16)
    results["product"] = out[0, 0].item()
    x = torch.ones(32, dtype=torch.float16)
    x[0] = 2048
    out = torch.empty(1, dtype=torch.float16)
    total[(1,)](x, out, N=32)
    results["total"] = out.item()
    two, other = (torch.full((32,), v, dtype=torch.bfloat16) for v in (2.5, 2.0))
    out = torch.empty(32, dtype=torch.bfloat16)
    addition[(1,)](two, other, out, N=32)
    results["addition"] = out[0].item()
    x = torch.linspace(-80, -60, 32)
    out = torch.empty(32)
    exponential[(1,)](x, out, N=32)
    true = x.double().exp()
    results["exponential"] = ((out.double() - true).abs() / true).max().item()
    return results


def accesses():
    """What misbehaving kernels leave behind."""
    memory = torch.arange(64, dtype=torch.float32)
    x, out = torch.frombuffer(memory.numpy(), dtype=torch.float32, count=24), torch.zeros(32)
    unmasked_copy[(1,)](x, out, N=32)
    count = torch.zeros(1)
    counter[(8,)](count)
    return {"copied": out[24:].tolist(), "count": count.item()}


def main(way):
    if way == "interpreter":
        print(json.dumps({"values": values(), "accesses": accesses(), "findings": []}))
        return
    from lethe_env.vgpu.driver import VirtualDriver

    driver = VirtualDriver()
    driver.activate()
    known = values()
    clean = len(driver.session.take_findings())
    left = accesses()
    fresh = torch.empty(32)
    driver.session.memory.mark_undefined(fresh)
    copy_of_nothing[(1,)](fresh, torch.empty(32), N=32)
    findings = [
        [f.kind, f.kernel, f.line, Path(f.file).name] for f in driver.session.take_findings()
    ]
    print(json.dumps({"values": known, "accesses": left, "findings": findings, "clean": clean}))


if __name__ == "__main__":
    main(sys.argv[1])
