"""Small kernels that use, together, all of Triton's language; each tells what it should give.

A case is a function without arguments that launches on the active driver and returns what the
kernel left and what it should have left, as tensors that are to be equal bit by bit.
"""

from collections.abc import Callable, Mapping

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

Outcome = tuple[torch.Tensor, torch.Tensor]
N = 256


def integers(*shape: int, low: int = -1000, high: int = 1000, seed: int = 3) -> torch.Tensor:
    """Random int32."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, shape, generator=generator, dtype=torch.int32)


def floats(*shape: int, seed: int = 4) -> torch.Tensor:
    """Normal float32."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _linear(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@triton.jit
def scan_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.associative_scan(tl.load(x + i), 0, _add))


def associative_scan() -> Outcome:
    """`tl.associative_scan` with a function of one value."""
    x, out = integers(N), torch.empty(N, dtype=torch.int32)
    scan_kernel[(1,)](x, out, N=N)
    return out, x.cumsum(0, dtype=torch.int32)


@triton.jit
def pair_scan_kernel(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    _, b = tl.associative_scan((tl.load(x + i), tl.load(y + i)), 0, _linear, reverse=True)
    tl.store(out + i, b)


def associative_scan_of_pairs() -> Outcome:
    """`tl.associative_scan` of a recurrence, backwards."""
    x, y = integers(N, low=-3, high=4), integers(N, seed=5)
    out = torch.empty(N, dtype=torch.int32)
    pair_scan_kernel[(1,)](x, y, out, N=N)
    total, expected = 0, []
    for a, b in zip(reversed(x.tolist()), reversed(y.tolist()), strict=True):
        total = a * total + b
        expected.append((total + 2**31) % 2**32 - 2**31)
    return out, torch.tensor(expected[::-1], dtype=torch.int32)


@triton.jit
def sort_kernel(x, out, N: tl.constexpr, DOWN: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.sort(tl.load(x + i), descending=DOWN))


def sort() -> Outcome:
    """`tl.sort`, both ways."""
    x, out = floats(N), torch.empty(2, N)
    sort_kernel[(1,)](x, out[0], N=N, DOWN=False)
    sort_kernel[(1,)](x, out[1], N=N, DOWN=True)
    ordered = x.sort().values
    return out, torch.stack([ordered, ordered.flip(0)])


@triton.jit
def top_kernel(x, out, N: tl.constexpr, K: tl.constexpr):
    tl.store(out + tl.arange(0, K), tl.topk(tl.load(x + tl.arange(0, N)), K))


def topk() -> Outcome:
    """`tl.topk`."""
    x, out = floats(N), torch.empty(16)
    top_kernel[(1,)](x, out, N=N, K=16)
    return out, x.topk(16).values


@triton.jit
def histogram_kernel(x, out, N: tl.constexpr, BINS: tl.constexpr):
    counts = tl.histogram(tl.load(x + tl.arange(0, N)), BINS)
    tl.store(out + tl.arange(0, BINS), counts)


def histogram() -> Outcome:
    """`tl.histogram`."""
    x, out = integers(N, low=0, high=32), torch.empty(32, dtype=torch.int32)
    histogram_kernel[(1,)](x, out, N=N, BINS=32)
    return out, torch.bincount(x, minlength=32).int()


@triton.jit
def random_kernel(out, bits, seed, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.rand(seed, i))
    tl.store(bits + i, tl.randint(seed, i))


def random() -> Outcome:
    """`tl.rand` and `tl.randint`: Philox with ten rounds."""
    out, bits = torch.empty(N), torch.empty(N, dtype=torch.int32)
    random_kernel[(1,)](out, bits, 1234, N=N)
    words = [_philox(1234, k) for k in range(N)]
    expected = torch.tensor([w - 2**32 * (w >> 31) for w in words], dtype=torch.int32)
    signed = torch.where(expected < 0, -expected - 1, expected)
    return torch.stack([out, bits.view(torch.float32)]), torch.stack(
        [signed.float() * torch.tensor(4.6566127342e-10), expected.view(torch.float32)]
    )


def _philox(seed: int, offset: int) -> int:
    """First word of Philox4x32-10 (Salmon et al., 2011)."""
    c0, c1, c2, c3, k0, k1 = offset, 0, 0, 0, seed, 0
    for _ in range(10):
        low, high = 0xCD9E8D57 * c2, 0xD2511F53 * c0
        c0, c1, c2, c3 = low >> 32 ^ c1 ^ k0, low % 2**32, high >> 32 ^ c3 ^ k1, high % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0


@triton.jit
def normal_kernel(out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, (tl.abs(tl.randn(7, i)) < 10).to(tl.int32))


def random_normal() -> Outcome:
    """`tl.randn` stays in range."""
    out = torch.empty(N, dtype=torch.int32)
    normal_kernel[(1,)](out, N=N)
    return out, torch.ones(N, dtype=torch.int32)


@triton.jit
def atomic_kernel(x, out, old, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    one = out + tl.zeros_like(i)
    tl.atomic_add(one, v)
    tl.atomic_max(one + 1, v)
    tl.atomic_min(one + 2, v)
    tl.atomic_and(one + 3, v)
    tl.atomic_or(one + 4, v)
    tl.atomic_xor(one + 5, v)
    tl.store(old + i, tl.atomic_xchg(out + 16 + i, v, mask=i < N // 2))
    tl.atomic_cas(out + 16 + N + i, i, v)


def atomics_of_integers() -> Outcome:
    """All atomic operations of int32, masked and not."""
    x = integers(N)
    out = torch.zeros(16 + 2 * N, dtype=torch.int32)
    out[3] = -1
    old = torch.zeros(N, dtype=torch.int32)
    atomic_kernel[(1,)](x, out, old, N=N)
    values = x.tolist()
    expected = torch.zeros_like(out)
    expected[0], expected[1], expected[2] = x.sum(), max(x.max(), 0), min(x.min(), 0)
    expected[3], expected[4], expected[5] = -1, 0, 0
    for value in values:
        expected[3], expected[4], expected[5] = (
            expected[3] & value,
            expected[4] | value,
            expected[5] ^ value,
        )
    expected[16 : 16 + N // 2] = x[: N // 2]
    expected[16 + N] = x[0]
    return out, expected


@triton.jit
def float_atomic_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    one = out + tl.zeros_like(i)
    tl.atomic_add(one, v)
    tl.atomic_max(one + 1, v)
    tl.atomic_min(one + 2, v)


def atomics_of_floats() -> Outcome:
    """Atomic add, max and min of float32; the numbers are integers, so that sums are exact."""
    x = integers(N).float()
    out = torch.zeros(3)
    float_atomic_kernel[(1,)](x, out, N=N)
    return out, torch.stack([x.sum(), x.max(), x.min()])


@triton.jit
def narrow_atomic_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_add(out + i, tl.load(x + i), sem="relaxed")


def atomics_of_halves() -> Outcome:
    """Atomic add of float16, bfloat16 and float64."""
    found, expected = [], []
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x, out = floats(N).to(dtype), floats(N, seed=6).to(dtype)
        expected.append((out + x).double())
        narrow_atomic_kernel[(1,)](x, out, N=N)
        found.append(out.double())
    return torch.stack(found), torch.stack(expected)


@triton.jit
def long_atomic_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    one = out + tl.zeros_like(i)
    tl.atomic_add(one, v)
    tl.atomic_max(one + 1, v, sem="acquire", scope="cta")
    tl.atomic_min(one + 2, v, sem="release", scope="sys")


def atomics_of_longs() -> Outcome:
    """Atomic operations of int64, with all orders and scopes."""
    x = integers(N).long() << 33
    out = torch.zeros(3, dtype=torch.int64)
    long_atomic_kernel[(1,)](x, out, N=N)
    return out, torch.stack([x.sum(), x.max(), x.min()])


@triton.jit
def cast_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


def fp8_e5m2() -> Outcome:
    """float8_e5m2, up and down, and through float16."""
    x = torch.arange(256, dtype=torch.uint8)
    narrow = x.view(torch.float8_e5m2)
    up, half = torch.empty(N), torch.empty(N, dtype=torch.float16)
    down = torch.empty(N, dtype=torch.float8_e5m2)
    cast_kernel[(1,)](narrow, up, N=N)
    cast_kernel[(1,)](narrow, half, N=N)
    y = floats(N) * 100
    cast_kernel[(1,)](y, down, N=N)
    found = torch.stack([up, half.float(), down.float()]).nan_to_num(nan=-5.0)
    wanted = torch.stack([narrow.float(), narrow.float(), y.to(torch.float8_e5m2).float()])
    return found, wanted.nan_to_num(nan=-5.0)


def fp8_e4m3() -> Outcome:
    """float8_e4m3fn, up and down; sm_80 has none."""
    x = torch.arange(256, dtype=torch.uint8)
    narrow = x.view(torch.float8_e4m3fn)
    up, half = torch.empty(N), torch.empty(N, dtype=torch.bfloat16)
    down = torch.empty(N, dtype=torch.float8_e4m3fn)
    cast_kernel[(1,)](narrow, up, N=N)
    cast_kernel[(1,)](narrow, half, N=N)
    y = floats(N) * 100
    cast_kernel[(1,)](y, down, N=N)
    found = torch.stack([up, half.float(), down.float()]).nan_to_num(nan=-5.0)
    wanted = torch.stack([narrow.float(), narrow.float(), y.to(torch.float8_e4m3fn).float()])
    return found, wanted.nan_to_num(nan=-5.0)


@triton.jit
def descriptor_kernel(x, y, out):
    out.store([0, 0], x.load([0, 16]) + y.load([4, 0]))


def tensor_descriptors() -> Outcome:
    """Descriptors made by the host, with tiles that reach over the edge."""
    x, y, out = floats(12, 40), floats(10, 16, seed=5), torch.zeros(8, 16)
    tiles = [TensorDescriptor.from_tensor(t, [8, 16]) for t in (x, y, out)]
    descriptor_kernel[(1,)](*tiles)
    padded = torch.zeros(8, 16)
    padded[:6] = y[4:]
    return out, x[:8, 16:32] + padded


@triton.jit
def made_descriptor_kernel(x, out, M, K, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, K], [K, 1], [B, B])
    target = tl.make_tensor_descriptor(out, [M, K], [K, 1], [B, B])
    target.store([0, 16], source.load([0, 16]) * 2)


def device_descriptors() -> Outcome:
    """Descriptors made by the kernel."""
    x, out = floats(12, 20), torch.zeros(12, 20)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    made_descriptor_kernel[(1,)](x, out, 12, 20, B=16)
    expected = torch.zeros(12, 20)
    expected[:, 16:] = x[:, 16:] * 2
    return out, expected


@triton.jit
def assembly_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.inline_asm_elementwise(
        """{
        .reg .f32 scaled;
        mul.f32 scaled, $1, 2.5;
        add.f32 $0, scaled, 1.0;
        }""",
        "=f,f",
        [tl.load(x + i)],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )
    tl.store(out + i, v)


def inline_assembly() -> Outcome:
    """Inline assembly with registers of its own and decimal literals."""
    x, out = floats(N), torch.empty(N)
    assembly_kernel[(1,)](x, out, N=N)
    return out, x * 2.5 + 1.0


@triton.jit
def packed_assembly_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.inline_asm_elementwise(
        "xor.b32 $0, $1, 0x55555555;", "=r,r", [tl.load(x + i)], dtype=tl.int8, is_pure=True, pack=4
    )
    tl.store(out + i, v)


def packed_inline_assembly() -> Outcome:
    """Inline assembly on four bytes at once."""
    x, out = integers(N, low=-100, high=100).to(torch.int8), torch.empty(N, dtype=torch.int8)
    packed_assembly_kernel[(1,)](x, out, N=N)
    return out, x ^ 0x55


@triton.jit(noinline=True)
def _twice_and_one(x, n):
    return x * 2 + n


@triton.jit(noinline=True)
def _store_it(p, v, i):
    tl.store(p + i, _twice_and_one(v, 7))


@triton.jit
def call_kernel(x, out, N: tl.constexpr):
    for i in range(N):
        v = _twice_and_one(tl.load(x + i), 1)
        _store_it(out, v, i)


def calls() -> Outcome:
    """Functions that are not inlined, one calling another."""
    x, out = integers(N), torch.empty(N, dtype=torch.int32)
    call_kernel[(1,)](x, out, N=N)
    return out, (x * 2 + 1) * 2 + 7


@triton.jit(noinline=True)
def _row_sum(x, N: tl.constexpr):
    return tl.sum(tl.load(x + tl.arange(0, N)), 0)


@triton.jit
def reducing_call_kernel(x, out, N: tl.constexpr):
    for row in range(3):
        tl.store(out + row, _row_sum(x + row * N, N))


def calls_that_wait() -> Outcome:
    """A function with barriers, called in a loop."""
    x, out = integers(3, N), torch.empty(3, dtype=torch.int32)
    reducing_call_kernel[(1,)](x, out, N=N)
    return out, x.sum(1, dtype=torch.int32)


@triton.jit
def while_kernel(x, out):
    n = tl.load(x + tl.program_id(0))
    steps = 0
    while n != 1:
        n = tl.where(n % 2 == 0, n // 2, 3 * n + 1)
        steps += 1
    tl.store(out + tl.program_id(0), steps)


def while_loop() -> Outcome:
    """A loop whose length depends on data."""
    x, out = torch.arange(1, 31, dtype=torch.int32), torch.empty(30, dtype=torch.int32)
    while_kernel[(30,)](x, out)
    expected = []
    for n in x.tolist():
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        expected.append(steps)
    return out, torch.tensor(expected, dtype=torch.int32)


@triton.jit
def gather_kernel(x, index, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.gather(tl.load(x + i), tl.load(index + i), 0))


def gather() -> Outcome:
    """`tl.gather`."""
    x, index = floats(N), integers(N, low=0, high=N)
    out = torch.empty(N)
    gather_kernel[(1,)](x, index, out, N=N)
    return out, x[index.long()]


@triton.jit
def shape_kernel(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    left, right = tl.split(tl.trans(tl.trans(tl.join(a, b))))
    tl.store(out + tl.arange(0, 2 * N), tl.interleave(right, left))
    tl.store(out + 2 * N + i, tl.flip(a, 0))


def shapes() -> Outcome:
    """Join, split, transpose, reshape, interleave, flip."""
    x, y, out = floats(N), floats(N, seed=5), torch.empty(3 * N)
    shape_kernel[(1,)](x, y, out, N=N)
    return out, torch.cat([torch.stack([y, x], 1).reshape(-1), x.flip(0)])


@triton.jit
def reduce_kernel(x, out, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(out, tl.max(v, 0))
    tl.store(out + 1, tl.min(v, 0))
    tl.store(out + 2, tl.argmax(v, 0).to(tl.float32))
    tl.store(out + 3, tl.argmin(v, 0).to(tl.float32))
    tl.store(out + 4, tl.max(tl.maximum(v, 0.5, propagate_nan=tl.PropagateNan.ALL), 0))
    tl.store(out + 5, tl.max(tl.clamp(v, -0.5, 0.5), 0))
    whole = (v * 100).to(tl.int32)
    tl.store(out + 6, tl.xor_sum(whole, 0).to(tl.float32))
    tl.store(out + 7, tl.min(whole, 0).to(tl.float32))
    tl.store(out + 8, tl.max(whole.to(tl.uint32), 0).to(tl.float32))


def reductions() -> Outcome:
    """Every built-in reduction."""
    x, out = floats(N), torch.empty(9)
    reduce_kernel[(1,)](x, out, N=N)
    whole = (x * 100).int()
    odd = 0
    for value in whole.tolist():
        odd ^= value
    unsigned = max(value % 2**32 for value in whole.tolist())
    plain = [x.max(), x.min(), x.argmax(), x.argmin(), max(x.max(), 0.5), 0.5, odd, whole.min()]
    return out, torch.tensor([*map(float, plain), float(unsigned)])


@triton.jit
def three_kernel(x, y, z, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    tl.store(out + i, tl.maximum(tl.maximum(a, b), c))
    tl.store(out + N + i, tl.minimum(a, tl.minimum(b, c)))
    tl.store(out + 2 * N + i, tl.fma(a, b, c))
    tl.store(out + 3 * N + i, a * b)
    tl.store(out + 4 * N + i, a - c)


def pairs_and_triples() -> Outcome:
    """What newer architectures do with two or three numbers at once."""
    x, y, z = (floats(N, seed=seed) for seed in range(3))
    x[:40] = float("nan")
    y[:20] = float("nan")
    z[:10] = float("nan")
    out = torch.empty(5, N)
    three_kernel[(1,)](x, y, z, out, N=N)
    triple = torch.fmax(torch.fmax(x, y), z), torch.fmin(x, torch.fmin(y, z))
    exact = (x.double() * y.double() + z.double()).float()
    wanted = torch.stack([*triple, exact, x * y, x - z])
    return out.nan_to_num(nan=-5.0), wanted.nan_to_num(nan=-5.0)


@triton.jit
def bf16_kernel(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + N + i, a * b)
    tl.store(out + 2 * N + i, tl.maximum(a, b))
    tl.store(out + 3 * N + i, (a.to(tl.float32) + b).to(tl.bfloat16))


def bfloat16() -> Outcome:
    """bfloat16 arithmetic."""
    x, y = floats(N).bfloat16(), floats(N, seed=5).bfloat16()
    out = torch.empty(4, N, dtype=torch.bfloat16)
    bf16_kernel[(1,)](x, y, out, N=N)
    return out, torch.stack([x + y, x * y, torch.maximum(x, y), x + y])


@triton.jit
def integer_kernel(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a // b)
    tl.store(out + N + i, a % b)
    tl.store(out + 2 * N + i, tl.umulhi(a, b))
    tl.store(out + 3 * N + i, (a << (b & 31)) ^ (a >> (b & 31)))
    tl.store(out + 4 * N + i, (a.to(tl.int64) * b).to(tl.int32) + tl.abs(a))


def integer_arithmetic() -> Outcome:
    """Division, remainder, high products and shifts."""
    x, y = integers(N, low=-(2**31), high=2**31 - 1), integers(N, low=1, high=9999)
    out = torch.empty(5, N, dtype=torch.int32)
    integer_kernel[(1,)](x, y, out, N=N)
    a, b = x.long(), y.long()
    quotient = torch.div(a, b, rounding_mode="trunc")
    high = (a % 2**32) * b >> 32
    shifted = (a << (b & 31)) ^ (a >> (b & 31))
    wanted = torch.stack([quotient, a - quotient * b, high, shifted, a * b + a.abs()])
    return out, wanted.int()


@triton.jit
def function_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    f = tl.sin(v) + tl.cos(v) + tl.exp(v) + tl.exp2(v) + tl.log(v) + tl.log2(v) + tl.sqrt(v)
    f += tl.rsqrt(v) + tl.erf(v) + tl.sqrt_rn(v) + tl.div_rn(v, 3.0) + tl.floor(v) + tl.ceil(v)
    f += tl.sigmoid(v)
    tl.store(out + i, (tl.abs(f) < 1e30).to(tl.int32))


def functions() -> Outcome:
    """Every function of `tl.math` runs."""
    x, out = floats(N).abs() + 0.1, torch.empty(N, dtype=torch.int32)
    function_kernel[(1,)](x, out, N=N)
    return out, torch.ones(N, dtype=torch.int32)


@triton.jit
def library_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + i, libdevice.pow(v, 2.5))
    tl.store(out + N + i, libdevice.tanh(v))
    tl.store(out + 2 * N + i, libdevice.lgamma(v))
    tl.store(out + 3 * N + i, libdevice.atan2(v, 0.5))
    tl.store(out + 4 * N + i, libdevice.expm1(v))
    tl.store(out + 5 * N + i, libdevice.log1p(v))
    tl.store(out + 6 * N + i, libdevice.fmod(v, 0.75))
    tl.store(out + 7 * N + i, libdevice.rint(v * 10))
    tl.store(out + 8 * N + i, libdevice.erfinv(v / 10))
    tl.store(out + 9 * N + i, libdevice.tan(v * 100))
    tl.store(out + 10 * N + i, libdevice.j0(v))
    tl.store(out + 11 * N + i, libdevice.cyl_bessel_i0(v))


def library() -> Outcome:
    """Functions of libdevice lie within 2**-18 of the true values."""
    x, out = floats(N).abs().clamp(0.1, 5), torch.empty(12, N)
    library_kernel[(1,)](x, out, N=N)
    v = x.double()
    true = torch.stack([
        v**2.5, v.tanh(), v.lgamma(), torch.atan2(v, torch.tensor(0.5).double()), v.expm1(),
        v.log1p(), v.fmod(0.75), (x * 10).round().double(), (x / 10).double().erfinv(),
        (x * 100).double().tan(), torch.special.bessel_j0(v), torch.special.i0(v),
    ])  # fmt: skip
    near = (out.double() - true).abs() <= 2.0**-18 * (true.abs() + 1)
    return near, torch.ones_like(near)


@triton.jit
def double_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    e = libdevice.exp(v) / (1.0 + libdevice.exp(-v))
    tl.store(out + i, e + tl.sqrt(tl.abs(v)) + libdevice.log(v * v))
    tl.store(out + N + i, libdevice.sin(v) * libdevice.pow(tl.abs(v), v))


def doubles() -> Outcome:
    """float64 with its functions lies within 2**-48 of the true values."""
    v = floats(N).double()
    out = torch.empty(2, N, dtype=torch.float64)
    double_kernel[(1,)](v, out, N=N)
    true = torch.stack([
        v.exp() / (1 + (-v).exp()) + v.abs().sqrt() + (v * v).log(), v.sin() * v.abs() ** v
    ])  # fmt: skip
    near = (out - true).abs() <= 2.0**-48 * (true.abs() + 1)
    return near, torch.ones_like(near)


@triton.jit
def directed_kernel(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, libdevice.mul_rd(a, b))
    tl.store(out + N + i, libdevice.mul_ru(a, b))
    tl.store(out + 2 * N + i, libdevice.div_rz(a, b))
    tl.store(out + 3 * N + i, libdevice.fma_rd(a, b, a))
    tl.store(out + 4 * N + i, libdevice.sqrt_ru(tl.abs(a)))
    tl.store(out + 5 * N + i, libdevice.rcp_rd(b))
    tl.store(out + 6 * N + i, libdevice.add_ru(a, b))


def directed_doubles() -> Outcome:
    """float64 rounded in a direction, against exact fractions."""
    from .executor.directed import directed

    x, y = floats(N).double(), floats(N, seed=5).double()
    x[:64] = torch.arange(64) * 5e-324
    out = torch.empty(7, N, dtype=torch.float64)
    directed_kernel[(1,)](x, y, out, N=N)
    a, b = x.tolist(), y.tolist()
    expected = [
        [directed("mul", "rm", p, q) for p, q in zip(a, b, strict=True)],
        [directed("mul", "rp", p, q) for p, q in zip(a, b, strict=True)],
        [directed("div", "rz", p, q) for p, q in zip(a, b, strict=True)],
        [directed("fma", "rm", p, q, p) for p, q in zip(a, b, strict=True)],
        [directed("sqrt", "rp", abs(p)) for p in a],
        [directed("rcp", "rm", q) for q in b],
        [directed("add", "rp", p, q) for p, q in zip(a, b, strict=True)],
    ]
    return out, torch.tensor(expected, dtype=torch.float64)


@triton.jit
def small_dot_kernel(a, b, out, N: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, N)
    tile = i[:, None] * N + i[None, :]
    x, y = tl.load(a + tile), tl.load(b + tile)
    tl.store(out + tile, tl.dot(x, y, input_precision=PRECISION))


def ieee_dot() -> Outcome:
    """`tl.dot` in full float32, without tensor cores; small integers, so that it is exact."""
    a, b = integers(16, 16, low=-9, high=9).float(), integers(16, 16, seed=5).float()
    out = torch.empty(16, 16)
    small_dot_kernel[(1,)](a, b, out, N=16, PRECISION="ieee")
    return out, a @ b


@triton.jit
def print_kernel(x):
    tl.device_print("value", tl.load(x))
    tl.device_print("bits", tl.load(x), hex=True)
    tl.device_print("half", tl.load(x).to(tl.float32) / 2)


def printing() -> Outcome:
    """`tl.device_print` of integers and floats."""
    session = triton.runtime.driver.active.session
    before = len(session.printed)
    print_kernel[(1,)](torch.tensor([7], dtype=torch.int32))
    lines = session.printed[before:]
    found = [any(text in line for line in lines) for text in ("7", "0x00000007", "3.5")]
    return torch.tensor(found), torch.ones(3, dtype=torch.bool)


@triton.jit
def wide_kernel(x, out, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=3) + 1, mask=i < n)


def wide_accesses() -> Outcome:
    """Vector loads and stores of every element size, with a tail."""
    found, expected = [], []
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        x = integers(4096, low=0, high=100).to(dtype)
        out = torch.zeros_like(x)
        wide_kernel[(2,)](x, out, 4000, N=2048)
        found.append(out.long())
        expected.append(torch.where(torch.arange(4096) < 4000, x.long() + 1, 0))
    return torch.stack(found), torch.stack(expected)


@triton.jit
def mixed_kernel(x, out, K: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, N), tl.arange(0, K)
    tile = tl.load(x + rows[:, None] * K + columns[None, :])
    tl.store(out + columns[:, None] * N + rows[None, :], tl.trans(tile))


def transposition() -> Outcome:
    """A tile turned over through shared memory, of several widths."""
    found, expected = [], []
    for dtype in (torch.float16, torch.float32):
        x = integers(64, 32).to(dtype)
        out = torch.empty(32, 64, dtype=dtype)
        mixed_kernel[(1,)](x, out, K=32, N=64)
        found.append(out.float())
        expected.append(x.float().T)
    return torch.stack(found), torch.stack(expected)


@triton.jit
def condition_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    if tl.max(v, 0) > 2:
        v = v * 2
    elif tl.program_id(0) == 0:
        v = -v
    for k in tl.static_range(3):
        v += k
    for k in tl.range(0, tl.program_id(0) + 4, num_stages=2):
        v += tl.load(x + k)
    tl.store(out + i, v)


def control_flow() -> Outcome:
    """Branches on data, static and pipelined loops."""
    x, out = integers(N, low=-5, high=6), torch.empty(N, dtype=torch.int32)
    condition_kernel[(1,)](x, out, N=N)
    return out, x * 2 + 3 + x[:4].sum().int()


CASES: Mapping[str, Callable[[], Outcome]] = {
    case.__name__: case
    for case in (
        associative_scan, associative_scan_of_pairs, sort, topk, histogram, random, random_normal,
        atomics_of_integers, atomics_of_floats, atomics_of_halves, atomics_of_longs, fp8_e5m2,
        fp8_e4m3, tensor_descriptors, device_descriptors, inline_assembly,
        packed_inline_assembly, calls, calls_that_wait, while_loop, gather, shapes, reductions,
        pairs_and_triples, bfloat16, integer_arithmetic, functions, library, doubles,
        directed_doubles, ieee_dot, printing, wide_accesses, transposition, control_flow,
    )
}  # fmt: skip
"""All cases by name."""

DIFFERENT_ON_90 = frozenset({
    "atomics_of_halves", "fp8_e5m2", "fp8_e4m3", "tensor_descriptors", "device_descriptors",
    "bfloat16", "wide_accesses", "transposition",
})  # fmt: skip
"""Cases for which Triton uses what sm_90 brought."""
