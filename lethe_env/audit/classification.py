"""Op class of a reference, from the aten operations that one call of it dispatches.

Names of problems, classes and variables play no part. The reference is called once at its base
shape, without gradients, in the mode its constructor leaves it in; every operation that reaches
PyTorch's dispatcher below autograd is noted. The first of these rules that holds is the class:

1. `attention`: a fused attention operation, or a matrix product one of whose operands is a
   softmax's result, possibly moved, cast, scaled or with dropout.
2. `recurrence`: a fused recurrent layer, or two matrix products with the same parameter.
3. `conv`, `loss`, `pooling`, `scan`, `norm`: an operation of that class in `OPERATIONS`.
4. `norm`: a reduction and a square root, as a norm written by hand has them.
5. `softmax`, `matmul`, `reduction`: an operation of that class in `OPERATIONS`.
6. `elementwise`: any other operation that computes.
7. `other`: data is moved at most.

So a class names the most characteristic part: a convolution with a ReLU is a convolution.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ATTENTION = frozenset(
    {
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable",
        "_native_multi_head_attention",
        "_transformer_encoder_layer_fwd",
        "flex_attention",
    }
)
RECURRENCE = frozenset({"mkldnn_rnn_layer", "_cudnn_rnn", "lstm", "gru", "rnn_tanh", "rnn_relu"})
ROOTS = frozenset({"sqrt", "rsqrt"})

OPERATIONS: dict[str, frozenset[str]] = {
    "conv": frozenset(
        {"convolution", "_convolution", "mkldnn_convolution", "_slow_conv2d_forward", "conv_tbc"}
    ),
    "loss": frozenset(
        {
            *("mse_loss", "smooth_l1_loss", "huber_loss", "nll_loss_forward", "nll_loss2d_forward"),
            *("binary_cross_entropy", "binary_cross_entropy_with_logits", "soft_margin_loss"),
            *("multi_margin_loss", "multilabel_margin_loss_forward", "_ctc_loss", "xlogy"),
        }
    ),
    "pooling": frozenset(
        {
            *("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d"),
            *("adaptive_max_pool2d", "adaptive_max_pool3d", "fractional_max_pool2d"),
            *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "fractional_max_pool3d"),
        }
    ),
    "scan": frozenset({"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "_cummax_helper"}),
    "norm": frozenset(
        {
            *("native_layer_norm", "native_group_norm", "native_batch_norm", "_fused_rms_norm"),
            *("_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "renorm"),
            *("_batch_norm_with_update", "linalg_vector_norm", "norm"),
        }
    ),
    "softmax": frozenset({"_softmax", "_log_softmax", "_safe_softmax", "logsumexp"}),
    "matmul": frozenset(
        {
            *("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "addr"),
            *("_int_mm", "_scaled_mm", "_trilinear", "linear", "matmul"),
        }
    ),
    "reduction": frozenset(
        {
            *("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "aminmax"),
            *("var", "std", "var_mean", "std_mean", "nansum", "median", "nanmedian", "mode"),
            *("all", "any", "count_nonzero", "kthvalue", "topk", "sort"),
        }
    ),
}
"""Names of aten operations by class; an in-place or `out` variant has its operation's name."""

_CARRIES = frozenset({"mul", "div", "add", "clone", "dropout", "native_dropout", "_to_copy", "cat"})
"""Operations whose result counts as the softmax that went in; views do anyway."""
_MOVES = frozenset(
    {
        *("clone", "copy", "cat", "stack", "_to_copy", "contiguous", "_unsafe_view", "fill"),
        *("empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like"),
        *("arange", "scalar_tensor", "lift_fresh", "index", "gather", "index_select", "repeat"),
        *("flip", "roll", "constant_pad_nd", "new_empty", "new_zeros", "new_full", "empty_strided"),
        *("embedding", "_local_scalar_dense", "tril", "triu", "scatter", "detach", "pixel_shuffle"),
    }
)


def op_class_of(operations: Collection[str]) -> str:
    """The class by the rules above.

    Args:
        operations: names of what was dispatched; `attention` and `recurrence` stand for those
            patterns where no single operation shows them.
    """
    names = set(operations)
    if names & ATTENTION or "attention" in names:
        return "attention"
    if names & RECURRENCE or "recurrence" in names:
        return "recurrence"
    for op_class in ("conv", "loss", "pooling", "scan", "norm"):
        if names & OPERATIONS[op_class]:
            return op_class
    if names & OPERATIONS["reduction"] and names & ROOTS:
        return "norm"
    for op_class in ("softmax", "matmul", "reduction"):
        if names & OPERATIONS[op_class]:
            return op_class
    return "elementwise" if names - _MOVES else "other"


class Trace(TorchDispatchMode):
    """Notes the operations of what is called while it is active."""

    def __init__(self, module: torch.nn.Module) -> None:
        """Nothing is noted yet.

        Args:
            module: whose parameters count as such.
        """
        super().__init__()
        self.operations: set[str] = set()
        self._parameters = {_place(parameter) for parameter in module.parameters()}
        self._multiplied: set[int] = set()
        self._softmax: dict[int, torch.UntypedStorage] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.removesuffix("_")
        if not func.is_view:
            self.operations.add(name)
        operands = list(_tensors((args, kwargs)))
        if name in OPERATIONS["matmul"]:
            self._note_product(operands)
        carried = name in _CARRIES and any(_place(each) in self._softmax for each in operands)
        if name in OPERATIONS["softmax"] or carried:
            for tensor in _tensors(result):  # held, so that its place is not given away
                self._softmax[_place(tensor)] = tensor.untyped_storage()
        return result

    def _note_product(self, operands: list[torch.Tensor]) -> None:
        for place in map(_place, operands):
            if place in self._softmax:
                self.operations.add("attention")
            if place in self._parameters and place in self._multiplied:
                self.operations.add("recurrence")
        self._multiplied.update(map(_place, operands))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
