"""Problems in KernelBench's convention, and one pool that judges whole tables of candidates."""

from __future__ import annotations

import textwrap

import pytest

from lethe_env.gates.kernelbench_rule import Rule
from lethe_env.kernelbench.evaluation import Settings, evaluate_many, task_of
from lethe_env.service.options import GraderOptions
from lethe_env.service.pool import Pool

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def module(
    name: str, body: str, init: str = "pass", arguments: str = "x", settings: str = ""
) -> str:
    """Source of a module class whose forward is `body`, a block that returns."""
    return (
        f"class {name}(nn.Module):\n"
        f"    def __init__(self, {settings}):\n"
        f"        super().__init__()\n{textwrap.indent(textwrap.dedent(init).strip(), ' ' * 8)}\n"
        f"    def forward(self, {arguments}):\n"
        f"{textwrap.indent(textwrap.dedent(body).strip(), ' ' * 8)}\n"
    )


def problem(
    body: str,
    inputs: str = "[torch.rand(rows, width)]",
    sizes: str = "rows, width = 4, 160",
    init: str = "pass",
    arguments: str = "x",
    settings: str = "",
) -> str:
    """Source of a reference; `settings` are sizes that its constructor gets."""
    return (
        f"{HEAD}{sizes}\n{module('Model', body, init, arguments, settings)}"
        f"def get_inputs():\n    return {inputs}\n"
        f"def get_init_inputs():\n    return [{settings}]\n"
    )


def candidate(
    body: str, init: str = "pass", arguments: str = "x", head: str = "", settings: str = ""
) -> str:
    """Source of a candidate."""
    return f"{HEAD}{head}\n{module('ModelNew', body, init, arguments, settings)}"


def same(source: str) -> str:
    """The reference as its own candidate."""
    return source.replace("class Model(", "class ModelNew(")


@pytest.fixture(scope="module")
def options():
    return GraderOptions(device="vgpu", targets=(), fail_fast=True)


@pytest.fixture(scope="module")
def pool(options):
    with Pool(options, 1) as shared:
        yield shared


@pytest.fixture(scope="module")
def judge(pool, options):
    """Results of both checks, by case, for a table of cases."""

    def run(cases):
        rows = list(cases.values())
        pairs = [(task_of("problem", case["problem"]), case["candidate"]) for case in rows]
        found = {}
        for check in ("contract", "kernelbench"):
            results = []
            for pair, case in zip(pairs, rows, strict=True):
                rule = Rule(
                    precision=case.get("precision", "float32"), tolerance=case.get("tolerance")
                )
                settings = Settings(check=check, rule=rule, backend=case.get("backend", "triton"))
                results += evaluate_many([pair], settings, pool, options)
            found[check] = dict(zip(cases, results, strict=True))
        return found

    return run
