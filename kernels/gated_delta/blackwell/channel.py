"""What a thread does for its key channel, a block of 16 tokens at a time; see `token_gradients.py`.

A row of a block is a Python list of 16 registers: a block is unrolled, the walk over blocks is not.
"""

import math
from typing import NamedTuple

import cutlass
from cutlass import cute

from .products import OPERAND, SUM, TOKENS
from .tensor_memory import load_row, store_row

BLOCK = 16
BLOCKS = TOKENS // BLOCK
COLUMNS = 256
QUERY, ERASED, KEY = 0, TOKENS, 2 * TOKENS
"""Columns of tensor memory where sums begin, of all tokens as queries, erase vectors and keys."""
BEYOND = {QUERY: 3 * TOKENS, ERASED: 3 * TOKENS + BLOCK, KEY: 3 * TOKENS + 2 * BLOCK}
"""Where those of a block over border 32 begin that is not next to it, the last or the first."""


class _Line(NamedTuple):
    """A channel of packed tokens."""

    first: cute.Pointer
    """At the chunk's first token."""
    step: cutlass.Int64
    """From token to token."""

    def at(self, token):
        return self.first + token * self.step


class Channel(NamedTuple):
    """What a thread has of a chunk."""

    inputs: list[_Line]
    """Of q, k, g and b."""
    results: list[_Line]
    """Of dq, dk, dg and db."""
    count: cutlass.Int32
    """Tokens that there are; none for channels behind the last one."""
    scale: cutlass.Float32
    """Of the queries."""
    thread: cutlass.Int32
    decays: bool
    erases: bool
    base: cute.Pointer | None = None
    """The first column of tensor memory."""
    decayed: cute.Tensor | None = None
    """Where decayed tokens are left factors of products."""
    near: cute.Tensor | None = None
    """dA and dM within blocks [column, row, block, matrix], float32."""
    totals: cute.Tensor | None = None
    """Decays over whole blocks."""
    crossing: cute.Tensor | None = None
    """What crosses whole blocks, of gradients of decays."""


def channel_of(inputs, results, first, heads, count, scale, thread, stage):
    """The thread's own channel.

    Args:
        inputs: q, k, g and b [tokens·H, width].
        results: For dq, dk, dg and db, as wide as q.
        first: Row of the chunk's first token.
        heads: H
        count: Tokens of the chunk.
        scale: Of the queries.
        thread: Which of 128 it is.
        stage: Says whether there are decays, and whether anything is erased.
    """
    queries, keys, *gates = inputs
    width = queries.shape[1]

    def line(tensor, width):
        # A gate for all channels is one that all threads read.
        channel = cutlass.select_(width == 1, 0, thread)
        return _Line(tensor.iterator + (first * width + channel), cutlass.Int64(heads * width))

    return Channel(
        [line(queries, width), line(keys, width), *(line(gate, gate.shape[1]) for gate in gates)],
        [line(result, width) for result in results],
        cutlass.Int32(cutlass.select_(thread < width, count, 0)),
        scale,
        thread,
        stage.decays,
        stage.erases,
    )


class _Tokens(NamedTuple):
    """A block's tokens; rows."""

    q: list
    """Scaled."""
    k: list
    b: list
    erase: list
    """b∘k"""
    decay: list
    """exp g"""


class _Gradients(NamedTuple):
    """Of a block's tokens; rows, to add to."""

    query: list
    erased: list
    """Of b∘k."""
    key: list
    """κ"""
    decay: list


def add_total(own, number):
    """Note the decay over a whole block."""
    (gates,) = _read(own, own.inputs[2:3], number)
    own.totals[number] = _exponential(sum(gates, SUM(0.0)))


def through_states(own, states, grad_states, values):
    """Note what flows from the entry to the exit, and crosses all blocks."""
    total = SUM(1.0)
    for number in range(BLOCKS):
        total *= own.totals[number]
    flow = SUM(0.0)
    for step in range(values // BLOCK):
        state, grad_state = (
            _halves(place[(own.thread, None), 0, step, 0]) for place in (states, grad_states)
        )
        flow = _dot([state[n] for n in range(BLOCK)], [grad_state[n] for n in range(BLOCK)], flow)
    own.crossing.fill(total * flow)


def prepare(own, number):
    """Decay a block's tokens to its borders, and what comes of the states from theirs to it.

    Notes what crosses whole blocks between it and the states.
    """
    x, c = _load(own, number), [own.totals[n] for n in range(BLOCKS)]
    forth = _forth(x.decay)
    keys, queries = _times(x.k, _back(x.decay)), _times(x.q, forth)
    entry = _pick([SUM(1.0), c[0], c[0] * c[1], c[0] * c[1] * c[2]], number)
    leave = _pick([c[1] * c[2] * c[3], c[2] * c[3], c[3], SUM(1.0)], number)
    arriving = _dot(queries, _multiply(own, QUERY, number, entry), SUM(0.0))
    leaving = _dot(keys, _multiply(own, KEY, number, leave), SUM(0.0))
    _put(_tensor(keys), c[1], number, own.thread, own.decayed, 0, 0)
    _put(_tensor(queries), c[2], number, own.thread, own.decayed, 1, BLOCKS - 1)
    if own.erases:
        erase = _times(x.erase, forth)
        arriving = _dot(erase, _multiply(own, ERASED, number, -entry), arriving)
        _put(_tensor(erase), c[2], number, own.thread, own.decayed, 2, BLOCKS - 1)
    if own.decays:
        for other in range(BLOCKS):
            after = cutlass.select_(other > number, leaving, SUM(0.0))
            own.crossing[other] += SUM(cutlass.select_(other < number, arriving, after))


def block_of(step):
    """The order in which blocks are finished: the last, the third, the first and the second.

    So those that are not next to border 32 can tell the others what crosses them.
    """
    half = BLOCKS // 2
    return cutlass.Int32(cutlass.select_(step < half, BLOCKS - 1 - step, step - half))


def finish(own, number):
    """Write all gradients of a block's tokens."""
    x = _load(own, number)
    found = _from_elsewhere(own, x, number)
    _add_within(own, x, found, number, 0, BLOCK)
    for n in range(BLOCK):
        erased, b, k = found.erased[n], x.b[n], x.k[n]
        key = cute.math.fma(erased, b, found.key[n]) if own.erases else found.key[n]
        _store(own, number * BLOCK + n, found.query[n] * own.scale, key, found.decay[n], erased * k)


def _from_elsewhere(own, x, number):
    """Gradients by the states and all other blocks."""
    key = _sums(own, KEY, number, x.k, _back(x.decay))
    decay, erased = [SUM(0.0)] * BLOCK, [SUM(0.0)] * BLOCK
    _add_crossed_before(decay, x.k, key)
    forth = _forth(x.decay)
    query = _sums(own, QUERY, number, x.q, forth)
    if own.erases:
        erased = _sums(own, ERASED, number, x.erase, forth)
    crossed = own.crossing[number]
    for n in reversed(range(BLOCK)):
        crossed = cute.math.fma(x.q[n], query[n], crossed)
        if own.erases:
            crossed = cute.math.fma(x.erase[n], erased[n], crossed)
        decay[n] += crossed
    return _Gradients(query, erased, key, decay)


def _sums(own, column, number, sources, decays):
    """A block's gradients of one kind, with those over border 32 if it is not next to it."""
    row = cute.make_rmem_tensor(BLOCK, SUM)
    load_row(own.base + column + number * BLOCK, row, own.thread)
    cute.arch.fence_view_async_tmem_load()
    for n in range(BLOCK):
        row[n] *= decays[n]
    far, between = (0, 1) if column == KEY else (3, 2)
    place = own.base + BEYOND[column]
    _add_beyond(
        row, place, number == far, own.thread, own.totals, own.crossing, sources, decays, between
    )
    return [row[n] for n in range(BLOCK)]


@cute.jit
def _add_beyond(
    row: cute.Tensor, place: cute.Pointer, is_far: cutlass.Boolean, thread: cutlass.Int32,
    totals: cute.Tensor, crossing: cute.Tensor, sources: list, decays: list,
    between: cutlass.Constexpr,
):  # fmt: skip
    """What comes over border 32 crosses the block between, too."""
    if is_far:
        more = cute.make_rmem_tensor(BLOCK, SUM)
        load_row(place, more, thread)
        cute.arch.fence_view_async_tmem_load()
        total, crossed = totals[between], crossing[between]
        for n in cutlass.range_constexpr(BLOCK):
            term = more[n] * (total * decays[n])
            row[n] += term
            crossed = cute.math.fma(sources[n], term, crossed)
        crossing[between] = crossed


def _add_within(own, x, found, number, first, count):
    """Add what tokens of a block are to each other, first each half to the other half.

    Args:
        own: The channel.
        x: The block's tokens.
        found: Its gradients so far.
        number: Which block it is.
        first: The first of the tokens.
        count: How many there are.
    """
    if count == 1:
        pair = own.near[first, first, number, 0]
        found.query[first] = cute.math.fma(pair, x.k[first], found.query[first])
        found.key[first] = cute.math.fma(pair, x.q[first], found.key[first])
        return
    half = count // 2
    middle = first + half
    back, forth = _back(x.decay[first:middle]), _forth(x.decay[middle : first + count])
    leaving = _times(x.k[first:middle], back)
    sums, crossed = [SUM(0.0)] * half, SUM(0.0)
    arriving = [(x.q, found.query)] + [(x.erase, found.erased)] * own.erases
    for n in reversed(range(half)):
        token = middle + n
        for matrix, (sources, gradients) in enumerate(arriving):
            pairs = _pairs_of(own.near[None, token, number, matrix], first, half)
            arrived = _dot(pairs, leaving, SUM(0.0))
            source = sources[token] * forth[n]
            sums = [cute.math.fma(pairs[m], source, sums[m]) for m in range(half)]
            crossed = cute.math.fma(source, arrived, crossed)
            gradients[token] = cute.math.fma(forth[n], arrived, gradients[token])
        found.decay[token] += crossed
    for n in range(half):
        found.key[first + n] = cute.math.fma(back[n], sums[n], found.key[first + n])
    crossed_before = found.decay[first:middle]
    _add_crossed_before(crossed_before, leaving, sums)
    found.decay[first:middle] = crossed_before
    _add_within(own, x, found, number, first, half)
    _add_within(own, x, found, number, middle, half)


def _add_crossed_before(decay, keys, gradients):
    """Add what crosses each token's decay on its way from earlier ones."""
    crossed = keys[0] * gradients[0]
    for n in range(1, len(decay)):
        decay[n] += crossed
        crossed = cute.math.fma(keys[n], gradients[n], crossed)


def _pairs_of(row, first, count):
    """Some of the pairs of a token with earlier ones."""
    pairs = cute.make_rmem_tensor((count,), SUM)
    cute.autovec_copy(cute.local_tile(row, (count,), (first // count,)), pairs)
    return [pairs[n] for n in range(count)]


def _load(own, number):
    """A block's tokens; zeros, and no decay, where there are none."""
    queries, keys, gates, erase_gates = own.inputs
    lines = [queries, keys] + [gates] * own.decays + [erase_gates] * own.erases
    q, k, *given = _read(own, lines, number)
    decay, b = [SUM(1.0)] * BLOCK, [SUM(0.0)] * BLOCK
    if own.decays:
        decay = [_exponential(g) for g in given[0]]
    if own.erases:
        b = given[-1]
    return _Tokens([x * own.scale for x in q], k, b, _times(b, k), decay)


def _read(own, lines, number):
    """A block's tokens of some lines."""
    first = number * BLOCK
    rows = [cute.make_rmem_tensor(BLOCK, SUM) for _ in lines]
    places, steps = [line.at(first) for line in lines], [line.step for line in lines]
    _fill(rows, places, steps, own.count - first)
    return [[row[n] for n in range(BLOCK)] for row in rows]


@cute.jit
def _fill(rows: list, places: list, steps: list, count: cutlass.Int32):
    if count >= BLOCK:
        for row, place, step in zip(rows, places, steps, strict=True):
            for n in cutlass.range_constexpr(BLOCK):
                row[n] = _at(place + n * step)[0].to(SUM)
    else:
        for n in cutlass.range_constexpr(BLOCK):
            for row in rows:
                row[n] = SUM(0.0)
            if n < count:
                for row, place, step in zip(rows, places, steps, strict=True):
                    row[n] = _at(place + n * step)[0].to(SUM)


def _store(own, token, *values):
    """Write a token's gradients, if there is such a token."""
    wanted = True, True, own.decays, own.erases
    lines = [line for line, is_wanted in zip(own.results, wanted, strict=True) if is_wanted]
    values = [value for value, is_wanted in zip(values, wanted, strict=True) if is_wanted]
    values = [x.to(line.first.value_type) for x, line in zip(values, lines, strict=True)]
    _write([line.at(token) for line in lines], values, token < own.count)


@cute.jit
def _write(places: list, values: list, is_there: cutlass.Boolean):
    if is_there:
        for place, value in zip(places, values, strict=True):
            _at(place)[0] = value


def _at(place):
    return cute.make_tensor(place, cute.make_layout(1))


def _multiply(own, column, number, factor):
    """Multiply a block's sums in tensor memory, and return them."""
    place = own.base + column + number * BLOCK
    row = cute.make_rmem_tensor(BLOCK, SUM)
    load_row(place, row, own.thread)
    cute.arch.fence_view_async_tmem_load()
    for n in range(BLOCK):
        row[n] *= factor
    store_row(row, place, own.thread)
    return [row[n] for n in range(BLOCK)]


@cute.jit
def _put(
    row: cute.Tensor, total: cutlass.Float32, number: cutlass.Int32, thread: cutlass.Int32,
    decayed: cute.Tensor, kind: cutlass.Constexpr, far: cutlass.Constexpr,
):  # fmt: skip
    """Put a row in its slot of left factors, and the far block's, decayed to border 32, in another.

    The slot of the block at the other end is free: in its role it has nobody to go to.
    """
    free = BLOCKS - 1 - far
    if number != free:
        _keep(row, decayed, thread, BLOCKS * kind + number)
    if number == far:
        for n in cutlass.range_constexpr(BLOCK):
            row[n] *= total
        _keep(row, decayed, thread, BLOCKS * kind + free)


def _keep(row, decayed, thread, slot):
    halves = cute.make_rmem_tensor((BLOCK,), OPERAND)
    halves.store(row.load().to(OPERAND))
    cute.autovec_copy(halves, decayed[(thread, None), 0, slot, 0])


def _tensor(row):
    """A row as one tensor of registers."""
    tensor = cute.make_rmem_tensor(BLOCK, SUM)
    for n, value in enumerate(row):
        tensor[n] = value
    return tensor


def _halves(place):
    """A block of numbers in shared memory, in float32."""
    row = cute.make_rmem_tensor((BLOCK,), OPERAND)
    cute.autovec_copy(place, row)
    return row.load().to(SUM)


def _pick(values, number):
    """The value for a block."""
    found = values[-1]
    for n in reversed(range(BLOCKS - 1)):
        found = SUM(cutlass.select_(number == n, values[n], found))
    return found


def _forth(decay):
    """Decays from the border before some tokens through each of them."""
    found = decay[:1]
    for one in decay[1:]:
        found.append(found[-1] * one)
    return found


def _back(decay):
    """Decays after each of some tokens, to the border behind them."""
    found = [SUM(1.0)]
    for one in reversed(decay[1:]):
        found.append(found[-1] * one)
    return found[::-1]


def _exponential(x):
    return cute.math.exp2(x * math.log2(math.e), fastmath=True)


def _times(left, right):
    return [x * y for x, y in zip(left, right, strict=True)]


def _dot(left, right, total):
    for x, y in zip(left, right, strict=True):
        total = cute.math.fma(x, y, total)
    return total
