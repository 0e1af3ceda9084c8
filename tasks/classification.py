"""Guess at the op class of a foreign reference, from its name and from what its source calls.

Tasks are listed without running anything. An audit, which runs the reference anyway, asks the
operations that it dispatches instead.
"""

from __future__ import annotations

import ast

_RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("attention", ("scaled_dot_product_attention", "multiheadattention", "attention")),
    ("recurrence", ("mamba", "lstm", "gru", "rnn", "recurrence", "delta_rule")),
    ("conv", ("conv",)),
    ("loss", ("loss", "cross_entropy", "kl_div", "nll")),
    ("pooling", ("pool",)),
    ("scan", ("cumsum", "cumprod", "scan", "cummax")),
    ("norm", ("norm",)),
    ("softmax", ("softmax", "logsumexp")),
    ("matmul", ("matmul", "linear", "mm", "bmm", "einsum", "gemm", "addmm")),
    ("reduction", ("sum", "mean", "amax", "amin", "argmax", "argmin", "prod", "reduction", "var")),
    (
        "elementwise",
        ("relu", "gelu", "elu", "selu", "silu", "swish", "sigmoid", "tanh", "soft", "hard", "mish"),
    ),
)
"""Classes from the most to the least specific: a convolution with a ReLU is a convolution."""


def guessed_op_class(name: str, source: str) -> str:
    """One of `tasks.model.OP_CLASSES`; `other` where nothing is recognised."""
    words = _called_names(source) | {
        word for word in name.lower().replace("/", "_").split("_") if word
    }
    for op_class, keys in _RULES:
        if any(_matches(word, key) for word in words for key in keys):
            return op_class
    return "other"


def _matches(word: str, key: str) -> bool:
    return word == key or (len(key) > 3 and key in word)


def _called_names(source: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute):
                names.add(function.attr.lower())
            elif isinstance(function, ast.Name):
                names.add(function.id.lower())
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            names.add("matmul")
    return names
