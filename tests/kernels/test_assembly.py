import ast

import pytest

from lethe_env.kernels.assembly import assemble
from lethe_env.kernels.controls import HONEST


def test_modules_become_one_text_without_imports_of_each_other(tmp_path):
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text(
        '"""One."""\n\nfrom __future__ import annotations\n\nimport math\n\nA = math.pi\n'
    )
    second.write_text('"""Two."""\n\nfrom .first import (\n    A,\n)\n\nB = 2 * A\n')
    names = {}
    exec(assemble([first, second]), names)
    assert names["B"] == 2 * names["A"]


@pytest.mark.parametrize(
    "control", [c for c in HONEST if c.library], ids=lambda control: control.name
)
def test_no_module_of_a_candidate_redefines_what_another_defines(control):
    defined = [
        node.name
        for node in ast.parse(control.source()).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    ]
    assert len(defined) == len(set(defined))
