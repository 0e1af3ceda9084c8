"""C4's rotation of input and output maps, and the way back.

    θ_t = Σ_{s≤t} π tanh(φ_s) Δ_s,   B'_t = R(θ_t) B_t,   C'_t = R(θ_t) C_t,   α_t = e^{Δ_t A}

Angles are kept in turns, τ = θ / 2π, and only what is left of whole turns: taking those away is
exact, and sine and cosine of π · 2τ need no further reduction. A program walks one head of one
sequence, TOKENS at a time, with the pairs of the state side by side.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

ROTATION_SIZES = (
    *("b_batch", "b_time", "b_head", "c_batch", "c_time", "c_head"),
    *("phase_batch", "phase_time", "phase_head", "length", "heads", "state_size", "turning"),
)
"""Arguments of which no special kernel is made: strides in elements, and sizes."""


@triton.jit
def pair_of(row, pair, present, state_size):
    """Elements 2i and 2i + 1 of each row, (TOKENS, BLOCK_PAIRS) each."""
    at = row[:, None] + 2 * pair[None, :]
    even, odd = (2 * pair < state_size)[None, :], (2 * pair + 1 < state_size)[None, :]
    left = tl.load(at, mask=even & present[:, None], other=0.0).to(tl.float32)
    right = tl.load(at + 1, mask=odd & present[:, None], other=0.0).to(tl.float32)
    return left, right


@triton.jit
def store_pair(row, pair, present, state_size, left, right):
    at = row[:, None] + 2 * pair[None, :]
    even, odd = (2 * pair < state_size)[None, :], (2 * pair + 1 < state_size)[None, :]
    tl.store(at, left.to(row.dtype.element_ty), mask=even & present[:, None])
    tl.store(at + 1, right.to(row.dtype.element_ty), mask=odd & present[:, None])


@triton.jit(do_not_specialize=ROTATION_SIZES)
def rotate(
    b, c, delta, a, phase, turned_b, turned_c, turns, alpha,
    b_batch, b_time, b_head, c_batch, c_time, c_head, phase_batch, phase_time, phase_head,
    length, heads, state_size, turning,
    TOKENS: tl.constexpr, BLOCK_PAIRS: tl.constexpr,
):  # fmt: skip
    """Turned maps (batch, length, heads, state), turns (…, turning), α (batch, length, heads)."""
    sequence = tl.program_id(0).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    pair = tl.arange(0, BLOCK_PAIRS)
    turns_at_all = (pair < turning)[None, :]
    rate = tl.load(a + head).to(tl.float32)
    carried = tl.zeros((BLOCK_PAIRS,), tl.float32)
    for start in range(0, length, TOKENS):
        t = (start + tl.arange(0, TOKENS)).to(tl.int64)
        present = t < length
        own = (batch * length + t) * heads + head
        step = tl.load(delta + own, mask=present, other=0.0).to(tl.float32)
        tl.store(alpha + own, tl.exp(step * rate), mask=present)
        both = present[:, None] & turns_at_all
        at = phase + batch * phase_batch + t * phase_time + head * phase_head
        rates = tl.load(at[:, None] + pair[None, :], mask=both, other=0.0).to(tl.float32)
        added = 0.5 * libdevice.tanh(rates) * step[:, None]
        turn = carried[None, :] + tl.cumsum(added, axis=0)
        turn -= tl.floor(turn + 0.5)
        carried += tl.sum(added, axis=0)
        carried -= tl.floor(carried + 0.5)
        tl.store(turns + own[:, None] * turning + pair[None, :], turn, mask=both)
        cosine, sine = libdevice.cospi(2.0 * turn), libdevice.sinpi(2.0 * turn)
        at = b + batch * b_batch + t * b_time + head * b_head
        left, right = pair_of(at, pair, present, state_size)
        first = tl.where(turns_at_all, left * cosine - right * sine, left)
        second = tl.where(turns_at_all, left * sine + right * cosine, right)
        store_pair(turned_b + own * state_size, pair, present, state_size, first, second)
        at = c + batch * c_batch + t * c_time + head * c_head
        left, right = pair_of(at, pair, present, state_size)
        first = tl.where(turns_at_all, left * cosine - right * sine, left)
        second = tl.where(turns_at_all, left * sine + right * cosine, right)
        store_pair(turned_c + own * state_size, pair, present, state_size, first, second)


@triton.jit(do_not_specialize=ROTATION_SIZES)
def rotate_back(
    turned_b, turned_c, from_b, from_c, turns, alpha, dalpha, from_delta, delta, a, phase,
    db, dc, ddelta, da, dphase,
    phase_batch, phase_time, phase_head, length, heads, state_size, turning,
    TOKENS: tl.constexpr, BLOCK_PAIRS: tl.constexpr,
):  # fmt: skip
    """Gradients of B, C, Δ, A and φ from those of the scan over turned maps, from right to left.

        dB = R(−θ) dB',   dC = R(−θ) dC',   dlog α = α dα,   dA = Σ_t Δ dlog α
        T_t = Σ_{s≥t} ⟨dB'_s, J B'_s⟩ + ⟨dC'_s, J C'_s⟩ for each pair, J the quarter turn
        dφ = π (1 − tanh² φ) Δ T,   dΔ = dΔ' + A dlog α + Σ_i π tanh(φ_i) T_i

    `from_b`, `from_c` and `from_delta` are dB', dC' and dΔ'; `da` is (batch, heads), parts.
    """
    sequence = tl.program_id(0).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    pair = tl.arange(0, BLOCK_PAIRS)
    turns_at_all = (pair < turning)[None, :]
    rate = tl.load(a + head).to(tl.float32)
    torque = tl.zeros((BLOCK_PAIRS,), tl.float32)
    rate_total = tl.zeros((TOKENS,), tl.float32)
    blocks = tl.cdiv(length, TOKENS)
    for done in range(blocks):
        t = ((blocks - 1 - done) * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)
        present = t < length
        own = (batch * length + t) * heads + head
        both = present[:, None] & turns_at_all
        step = tl.load(delta + own, mask=present, other=0.0).to(tl.float32)
        turn = tl.load(turns + own[:, None] * turning + pair[None, :], mask=both, other=0.0)
        cosine, sine = libdevice.cospi(2.0 * turn), libdevice.sinpi(2.0 * turn)
        row = own * state_size
        b_left, b_right = pair_of(turned_b + row, pair, present, state_size)
        c_left, c_right = pair_of(turned_c + row, pair, present, state_size)
        db_left, db_right = pair_of(from_b + row, pair, present, state_size)
        dc_left, dc_right = pair_of(from_c + row, pair, present, state_size)
        first = tl.where(turns_at_all, db_left * cosine + db_right * sine, db_left)
        second = tl.where(turns_at_all, db_right * cosine - db_left * sine, db_right)
        store_pair(db + row, pair, present, state_size, first, second)
        first = tl.where(turns_at_all, dc_left * cosine + dc_right * sine, dc_left)
        second = tl.where(turns_at_all, dc_right * cosine - dc_left * sine, dc_right)
        store_pair(dc + row, pair, present, state_size, first, second)
        own_torque = db_right * b_left - db_left * b_right + dc_right * c_left - dc_left * c_right
        own_torque = tl.where(both, own_torque, 0.0)
        suffix = torque[None, :] + tl.cumsum(own_torque, axis=0, reverse=True)
        torque += tl.sum(own_torque, axis=0)
        at = phase + batch * phase_batch + t * phase_time + head * phase_head
        rates = tl.load(at[:, None] + pair[None, :], mask=both, other=0.0).to(tl.float32)
        fallen = tl.exp(-2.0 * tl.abs(rates))
        slope = 4.0 * fallen / ((1.0 + fallen) * (1.0 + fallen))
        gained = 3.141592653589793 * slope * step[:, None] * suffix
        place = dphase + own[:, None] * turning + pair[None, :]
        tl.store(place, gained.to(dphase.dtype.element_ty), mask=both)
        spun = tl.where(both, 3.141592653589793 * libdevice.tanh(rates) * suffix, 0.0)
        fade = tl.load(alpha + own, mask=present, other=0.0)
        decayed = fade * tl.load(dalpha + own, mask=present, other=0.0)
        rate_total += step * decayed
        total = tl.load(from_delta + own, mask=present, other=0.0) + rate * decayed
        total += tl.sum(spun, axis=1)
        tl.store(ddelta + own, total.to(ddelta.dtype.element_ty), mask=present)
    tl.store(da + sequence, tl.sum(rate_total, axis=0))
