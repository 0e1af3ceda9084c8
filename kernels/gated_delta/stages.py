"""The stages of the chunkwise algorithm, one function each.

A chunk is C consecutive tokens i, j of one batch entry and head. Inside it Eq. (1) of
`reference.py` becomes a unit lower triangular system for the rows u_t, so that everything is
matrix products but for the state at the chunk's entry, h. Tensors are [B, H, N, C, …], N chunks.

Every decay is exp of a sum of log decays, never of a difference of two running sums: a sum of
non-positive terms loses nothing to cancellation, is never positive, and stays −inf where a term is.

    a_i = g_1 + … + g_i        prefix, from the chunk's entry to token i        [C, K]
    z_j = g_{j+1} + … + g_C    suffix, from token j to the chunk's exit         [C, K]
    s_ij = g_{j+1} + … + g_i   span, from token j to token i ≥ j                [C, C, K]
    a_C                        total                                            [1, K]

Stages take `operand`, which rounds what enters a matrix product: the identity for the ladder's
exact rungs, a round trip through a half type to model tensor cores that accumulate in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Operand = Callable[[Tensor], Tensor]


def exact(x: Tensor) -> Tensor:
    """Leave an operand as it is."""
    return x


def half_operand(x: Tensor) -> Tensor:
    """Round an operand to float16, as a tensor core with float16 inputs gets it."""
    return x.to(torch.float16).to(x.dtype)


def bfloat16_operand(x: Tensor) -> Tensor:
    """Round an operand to bfloat16."""
    return x.to(torch.bfloat16).to(x.dtype)


class Decays(NamedTuple):
    """Sums of log decays within each chunk; see above."""

    prefix: Tensor
    """[…, C, K]"""
    suffix: Tensor
    """[…, C, K]"""
    span: Tensor
    """[…, C, C, K], −inf for i < j."""
    total: Tensor
    """[…, 1, K]"""


class Pairs(NamedTuple):
    """Products of tokens within a chunk."""

    attention: Tensor
    """A_ij = Σ_d q_id k_jd exp(s_ijd) for i ≥ j, else 0. […, C, C]"""
    erasure: Tensor
    """M_ij = Σ_d (b∘k)_id k_jd exp(s_ijd) for i > j, else 0. […, C, C]"""


class Scan(NamedTuple):
    """What the forward scan over chunks leaves."""

    states: Tensor
    """h_n, the state at the entry of each chunk. [B, H, N, K, V]"""
    updates: Tensor
    """U, the rows u_t that tokens add to the state. [B, H, N, C, V]"""
    final: Tensor
    """[B, H, K, V]"""


class ReverseScan(NamedTuple):
    """What the reverse scan over chunks leaves."""

    grad_states: Tensor
    """dh_n, gradient of the state that *leaves* chunk n. [B, H, N, K, V]"""
    grad_updates: Tensor
    """dU. [B, H, N, C, V]"""
    grad_initial: Tensor
    """[B, H, K, V]"""


class TransformGradients(NamedTuple):
    """Gradients through U = T (W∘V − Kb h)."""

    written: Tensor
    """d(w∘v). […, C, V]"""
    erased: Tensor
    """dKb, of the decayed erase vectors. […, C, K]"""
    erasure: Tensor
    """dM, strictly lower. […, C, C]"""


class KeyGradients(NamedTuple):
    """Gradients of what has a key's width. Each […, C, K]."""

    query: Tensor
    """dq, of the scaled query."""
    erased: Tensor
    """d(b∘k)"""
    key: Tensor
    """κ, of the key in its role as a key."""
    decay: Tensor
    """dg, or this stage's share of it."""


def decays(g: Tensor) -> Decays:
    """Sum the log decays g [..., C, K]."""
    length = g.shape[-2]
    later = _lower(length, strict=True).unsqueeze(-1)
    terms = g.unsqueeze(-2).expand(*g.shape[:-1], length, g.shape[-1])
    span = terms.masked_fill(~later, 0.0).cumsum(-3)
    span = span.masked_fill(~_lower(length).unsqueeze(-1), -torch.inf)
    return Decays(g.cumsum(-2), span[..., -1, :, :], span, g.sum(-2, keepdim=True))


def pair_products(
    q: Tensor, k: Tensor, erase: Tensor, span: Tensor, operand: Operand = exact
) -> Pairs:
    """A and M from queries, keys and erase vectors b∘k [..., C, K]."""
    decay, k = span.exp(), operand(k)
    attention = torch.einsum("...id,...jd,...ijd->...ij", operand(q), k, decay)
    erasure = torch.einsum("...id,...jd,...ijd->...ij", operand(erase), k, decay)
    return Pairs(attention, erasure.tril(-1))


def triangular_inverse(erasure: Tensor) -> Tensor:
    """T = (I + M)⁻¹ by forward substitution, row by row; unit lower triangular [..., C, C].

    Substitution is backward stable whatever the keys. A product of powers of M is not: for equal
    keys the powers reach 10¹⁷ although no entry of T is larger than 2.
    """
    length = erasure.shape[-1]
    inverse = torch.eye(length, dtype=erasure.dtype).expand_as(erasure).clone()
    for i in range(1, length):
        inverse[..., i, :] -= torch.einsum(
            "...j,...jc->...c", erasure[..., i, :i], inverse[..., :i, :]
        )
    return inverse


def blocked_inverse(erasure: Tensor, block: int = 16) -> Tensor:
    """T = (I + M)⁻¹ as kernels do it: substitution in diagonal blocks, then merged block rows.

    With block rows I, T_I = D_I (E_I − M_I,<I T_<I), where D_I inverts the diagonal block and E_I
    is its row of the identity.
    """
    length = erasure.shape[-1]
    inverse = torch.eye(length, dtype=erasure.dtype).expand_as(erasure).clone()
    for start in range(0, length, block):
        rows = slice(start, min(start + block, length))
        known = erasure[..., rows, :start] @ inverse[..., :start, :]
        rest = inverse[..., rows, :].clone()
        rest[..., :] -= known
        inverse[..., rows, :] = triangular_inverse(erasure[..., rows, rows]) @ rest
    return inverse


def wy_pair(
    inverse: Tensor, erase_decayed: Tensor, written: Tensor, operand: Operand = exact
) -> tuple[Tensor, Tensor]:
    """Ww = T Kb [..., C, K] and Uu = T (w∘v) [..., C, V], with Kb = b∘k∘exp(a)."""
    inverse = operand(inverse)
    return inverse @ operand(erase_decayed), inverse @ operand(written)


def state_scan(
    erase_transformed: Tensor,
    written_transformed: Tensor,
    key_decayed: Tensor,
    total: Tensor,
    initial: Tensor,
    operand: Operand = exact,
) -> Scan:
    """Walk over the chunks: U = Uu − Ww h, h ← exp(a_C)∘h + Kgᵀ U, with Kg = k∘exp(z).

    Args:
        erase_transformed: Ww [B, H, N, C, K].
        written_transformed: Uu [B, H, N, C, V].
        key_decayed: Kg [B, H, N, C, K].
        total: a_C [B, H, N, 1, K].
        initial: S_0 [B, H, K, V]; carried unrounded.
        operand: Rounding of operands.
    """
    state, states, updates = initial, [], []
    for n in range(key_decayed.shape[2]):
        states.append(state)
        update = written_transformed[:, :, n] - operand(erase_transformed[:, :, n]) @ operand(state)
        updates.append(update)
        added = operand(key_decayed[:, :, n]).mT @ operand(update)
        state = total[:, :, n].mT.exp() * state + added
    return Scan(torch.stack(states, 2), torch.stack(updates, 2), state)


def outputs(
    query_decayed: Tensor,
    states: Tensor,
    attention: Tensor,
    updates: Tensor,
    operand: Operand = exact,
) -> Tensor:
    """O = Qg h + A U [..., C, V], with Qg = q∘exp(a)."""
    carried = operand(query_decayed) @ operand(states)
    return carried + operand(attention) @ operand(updates)


def output_adjoint(
    grad_output: Tensor, attention: Tensor, updates: Tensor, operand: Operand = exact
) -> tuple[Tensor, Tensor]:
    """dA = tril(dO Uᵀ) [..., C, C], and Aᵀ dO [..., C, V], the share of dU from this chunk."""
    grad_output = operand(grad_output)
    grad_attention = (grad_output @ operand(updates).mT).tril()
    return grad_attention, operand(attention).mT @ grad_output


def reverse_state_scan(
    query_decayed: Tensor,
    key_decayed: Tensor,
    erase_transformed: Tensor,
    total: Tensor,
    grad_output: Tensor,
    grad_updates_local: Tensor,
    grad_final: Tensor,
    operand: Operand = exact,
) -> ReverseScan:
    """K#1, the reverse walk over the chunks with dS, the gradient of the state leaving chunk n.

        dU = Aᵀ dO + Kg dS
        dS ← exp(a_C)∘dS + Qgᵀ dO − Wwᵀ dU

    The last two products are one, [Qgᵀ | −Wwᵀ] [dO ; dU]. dS is carried unrounded.

    Args:
        query_decayed: Qg [B, H, N, C, K].
        key_decayed: Kg [B, H, N, C, K].
        erase_transformed: Ww [B, H, N, C, K].
        total: a_C [B, H, N, 1, K].
        grad_output: dO [B, H, N, C, V].
        grad_updates_local: Aᵀ dO [B, H, N, C, V].
        grad_final: Gradient of the final state [B, H, K, V].
        operand: Rounding of operands.
    """
    chunks = query_decayed.shape[2]
    grad_state = grad_final
    grad_states, grad_updates = [grad_final] * chunks, [grad_updates_local[:, :, 0]] * chunks
    for n in reversed(range(chunks)):
        grad_states[n] = grad_state
        grad_update = grad_updates_local[:, :, n] + operand(key_decayed[:, :, n]) @ operand(
            grad_state
        )
        grad_updates[n] = grad_update
        left = torch.cat([query_decayed[:, :, n], -erase_transformed[:, :, n]], -2)
        right = torch.cat([grad_output[:, :, n], grad_update], -2)
        grad_state = total[:, :, n].mT.exp() * grad_state + operand(left).mT @ operand(right)
    return ReverseScan(torch.stack(grad_states, 2), torch.stack(grad_updates, 2), grad_state)


def transform_adjoint(
    inverse: Tensor,
    updates: Tensor,
    states: Tensor,
    grad_updates: Tensor,
    operand: Operand = exact,
) -> TransformGradients:
    """K#2 in three products, from U = T R with R = w∘v − Kb h.

        dR = Tᵀ dU      d(w∘v) = dR      dKb = −dR hᵀ      dM = −stril(dR Uᵀ)

    The last follows from dM = −Tᵀ dT Tᵀ with dT = dU Rᵀ, as Tᵀ dU = dR and T R = U.

    Args:
        inverse: T [..., C, C].
        updates: U [..., C, V].
        states: h [..., K, V].
        grad_updates: dU [..., C, V].
        operand: Rounding of operands.
    """
    residual = operand(inverse).mT @ operand(grad_updates)
    erased = -operand(residual) @ operand(states).mT
    erasure = -(operand(residual) @ operand(updates).mT).tril(-1)
    return TransformGradients(residual, erased, erasure)


def transform_adjoint_by_inverse(
    inverse: Tensor,
    erase_decayed: Tensor,
    written: Tensor,
    states: Tensor,
    grad_updates: Tensor,
    operand: Operand = exact,
) -> TransformGradients:
    """K#2 in seven products, through dT; the form in the literature, kept to check the other.

        dWw = −dU hᵀ                dT = dU (w∘v)ᵀ + dWw Kbᵀ
        d(w∘v) = Tᵀ dU              dKb = Tᵀ dWw              dM = −stril(Tᵀ dT Tᵀ)

    Args:
        inverse: T [..., C, C].
        erase_decayed: Kb [..., C, K].
        written: w∘v [..., C, V].
        states: h [..., K, V].
        grad_updates: dU [..., C, V].
        operand: Rounding of operands.
    """
    transposed, grad_updates = operand(inverse).mT, operand(grad_updates)
    grad_transformed = -grad_updates @ operand(states).mT
    grad_inverse = grad_updates @ operand(written).mT
    grad_inverse = grad_inverse + operand(grad_transformed) @ operand(erase_decayed).mT
    erasure = -(operand(transposed @ operand(grad_inverse)) @ transposed)
    return TransformGradients(
        transposed @ grad_updates, transposed @ operand(grad_transformed), erasure.tril(-1)
    )


def state_gradients(
    grad_output: Tensor,
    updates: Tensor,
    states: Tensor,
    grad_states: Tensor,
    operand: Operand = exact,
) -> tuple[Tensor, Tensor]:
    """dQg = dO hᵀ and dKg = U dhᵀ, of the decayed queries and keys [..., C, K].

    Args:
        grad_output: dO [..., C, V].
        updates: U [..., C, V].
        states: h [..., K, V].
        grad_states: dh [..., K, V].
        operand: Rounding of operands.
    """
    query = operand(grad_output) @ operand(states).mT
    return query, operand(updates) @ operand(grad_states).mT


def inter_chunk_gradients(
    q: Tensor,
    k: Tensor,
    erase: Tensor,
    decay: Decays,
    grad_query: Tensor,
    grad_key: Tensor,
    grad_erased: Tensor,
    states: Tensor,
    grad_states: Tensor,
) -> KeyGradients:
    """Stage B, first half: what flows through the states at a chunk's entry and exit.

        dq = dQg∘exp(a)      d(b∘k) = dKb∘exp(a)      κ = dKg∘exp(z)
        dg_t = Σ_{i≥t} (q∘dq + b∘k∘d(b∘k))_i + Σ_{j<t} (k∘κ)_j + exp(a_C)∘Σ_v h∘dh

    The last line collects every path that crosses token t's decay: from the entry to a token i ≥ t,
    from a token j < t to the exit, and from the entry to the exit.

    Args:
        q: Scaled queries [..., C, K].
        k: Keys [..., C, K].
        erase: b∘k [..., C, K].
        decay: Of the chunk.
        grad_query: dQg [..., C, K].
        grad_key: dKg [..., C, K].
        grad_erased: dKb [..., C, K].
        states: h [..., K, V].
        grad_states: dh [..., K, V].
    """
    entry = decay.prefix.exp()
    query, erased, key = grad_query * entry, grad_erased * entry, grad_key * decay.suffix.exp()
    from_entry = _reversed_cumsum(q * query + erase * erased)
    to_exit = (k * key).cumsum(-2).roll(1, -2)
    to_exit[..., 0, :] = 0.0
    through = decay.total.exp() * (states * grad_states).sum(-1).unsqueeze(-2)
    return KeyGradients(query, erased, key, from_entry + to_exit + through)


def intra_chunk_gradients(
    q: Tensor,
    k: Tensor,
    erase: Tensor,
    span: Tensor,
    grad_pairs: Pairs,
    operand: Operand = exact,
) -> KeyGradients:
    """Stage B, second half: what flows between tokens of one chunk.

        dq_i = Σ_{j≤i} dA_ij k_j∘exp(s_ij)           d(b∘k)_i = Σ_{j<i} dM_ij k_j∘exp(s_ij)
        κ_j  = Σ_{i≥j} (dA_ij q_i + dM_ij (b∘k)_i)∘exp(s_ij)
        dg_t = Σ_{j<t≤i} (dA_ij q_i + dM_ij (b∘k)_i)∘k_j∘exp(s_ij)

    The last line sums the pairs that straddle t and nothing else, so that a strong decay leaves a
    small gradient with a small error. `decay_gradient` gets the same from the first two lines, by
    a difference of large terms.

    Args:
        q: Scaled queries [..., C, K].
        k: Keys [..., C, K].
        erase: b∘k [..., C, K].
        span: s [..., C, C, K].
        grad_pairs: dA and dM [..., C, C].
        operand: Rounding of operands.
    """
    decay = span.exp()
    grad_attention, grad_erasure = operand(grad_pairs.attention), operand(grad_pairs.erasure)
    q, k, erase = operand(q), operand(k), operand(erase)
    query = torch.einsum("...ij,...jd,...ijd->...id", grad_attention, k, decay)
    erased = torch.einsum("...ij,...jd,...ijd->...id", grad_erasure, k, decay)
    sources = grad_attention.unsqueeze(-1) * q.unsqueeze(-2)
    sources = (sources + grad_erasure.unsqueeze(-1) * erase.unsqueeze(-2)) * decay
    reaching = _reversed_cumsum(sources * k.unsqueeze(-3), axis=-3)
    straddling = reaching.masked_fill(~_lower(q.shape[-2], strict=True).unsqueeze(-1), 0.0)
    return KeyGradients(query, erased, sources.sum(-3), straddling.sum(-2))


def decay_gradient(
    q: Tensor,
    k: Tensor,
    erase: Tensor,
    total: KeyGradients,
    inter_key: Tensor,
    decay: Decays,
    states: Tensor,
    grad_states: Tensor,
) -> Tensor:
    """dg [..., C, K] from the other gradients alone, the form in the literature.

        da_i = q_i∘dq_i + (b∘k)_i∘d(b∘k)_i − k_i∘κ_i + [i = C] (Σ_j (k∘κ')_j + exp(a_C)∘Σ_v h∘dh)
        dg_t = Σ_{i≥t} da_i

    with κ' the inter-chunk share of κ. Terms of pairs on one side of t cancel in the sum, in exact
    arithmetic; the others' rounding errors stay, however small dg_t is.
    """
    grad = q * total.query + erase * total.erased - k * total.key
    through = decay.total.squeeze(-2).exp() * (states * grad_states).sum(-1)
    grad[..., -1, :] += (k * inter_key).sum(-2) + through
    return _reversed_cumsum(grad)


def _lower(length: int, *, strict: bool = False) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril(-1 if strict else 0)


def _reversed_cumsum(x: Tensor, axis: int = -2) -> Tensor:
    return x.flip(axis).cumsum(axis).flip(axis)
