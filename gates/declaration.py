"""What precision a candidate declares in its own source."""

from __future__ import annotations

import ast


def declares_tf32(source: str) -> bool:
    """Whether some call says that it computes in TF32.

    An explicit `input_precision="tf32"` or `allow_tf32=True` is a declaration, and the candidate
    is then charged at that precision only. The silent default of `tl.dot` declares nothing.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return any(
        _is_tf32(keyword)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
    )


def _is_tf32(keyword: ast.keyword) -> bool:
    if not isinstance(keyword.value, ast.Constant):
        return False
    if keyword.arg == "input_precision":
        return keyword.value.value == "tf32"
    return keyword.arg == "allow_tf32" and keyword.value.value is True
