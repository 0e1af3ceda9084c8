"""What KernelBench rejects wrongly: its rule does so here too, the contract does not."""

from __future__ import annotations

import pytest

from lethe_env.cell import review

from .conftest import candidate, module, problem, same

pytestmark = pytest.mark.xdist_group("kernelbench false rejects")

CROSS_ENTROPY = problem(
    "return F.cross_entropy(x, y)",
    inputs="[torch.rand(rows, width), torch.randint(0, width, (rows,))]",
    sizes="rows, width = 8, 40",
    arguments="x, y",
)
DROPOUT = problem(
    "return torch.softmax(self.dropout(self.linear(x)), dim=1)",
    init="self.linear = nn.Linear(width, 24)\nself.dropout = nn.Dropout(0.2)",
    sizes="rows, width = 4, 40",
    settings="width",
)
TWO_LAYERS = problem(
    "return self.second(torch.relu(self.first(x)))",
    init="self.first = nn.Linear(width, 24)\nself.second = nn.Linear(24, 8)",
    sizes="rows, width = 4, 40",
    settings="width",
)
OTHER_ORDER = candidate(
    "return self.second(torch.relu(self.first(x)))",
    init="self.second = nn.Linear(24, 8)\nself.first = nn.Linear(width, 24)",
    settings="width",
)
RENAMED = candidate(
    "return self.b(torch.relu(self.a(x)))",
    init="self.a = nn.Linear(width, 24)\nself.b = nn.Linear(24, 8)",
    settings="width",
)
PAIR = problem("return x * 2, x.sum(dim=1)", sizes="rows, width = 4, 40")
UNDEFINED = problem("return torch.sqrt(x - 0.5)", sizes="rows, width = 4, 40")
HALF_BREAKS = problem("return torch.matmul(x, torch.eye(x.shape[1]))", sizes="rows, width = 4, 40")
RATE = "rate = torch.sigmoid(a) * (84.0 / a.shape[1])"  # exp(84) is finite in float32
RECURRENT = problem(
    f"""
    {RATE}
    gap = torch.cumsum(rate, dim=1)
    later = torch.ones(a.shape[1], a.shape[1], dtype=torch.bool).triu(1)
    decay = torch.exp((gap[:, :, None] - gap[:, None, :]).masked_fill(later, -torch.inf))
    return torch.matmul(decay, x)
    """,
    inputs="[torch.randn(rows, 256, width), torch.randn(rows, 256)]",
    sizes="rows, width = 2, 8",
    arguments="x, a",
)
STEP_BY_STEP = candidate(
    f"""
    a, wide = a.float(), x.float()
    {RATE}
    state = torch.zeros_like(wide[:, 0])
    states = []
    for step in range(x.shape[1]):
        state = torch.exp(rate[:, step, None]) * state + wide[:, step]
        states.append(state)
    return torch.stack(states, dim=1).to(x.dtype)
    """,
    arguments="x, a",
)
HONEST = {
    "integer targets": {"problem": CROSS_ENTROPY, "candidate": same(CROSS_ENTROPY)},
    "dropout": {"problem": DROPOUT, "candidate": same(DROPOUT)},
    "another order of layers": {"problem": TWO_LAYERS, "candidate": OTHER_ORDER},
    "several outputs": {"problem": PAIR, "candidate": same(PAIR)},
    "NaN in the reference": {"problem": UNDEFINED, "candidate": same(UNDEFINED)},
    "a growing state summed in another order": {"problem": RECURRENT, "candidate": STEP_BY_STEP},
    "a reference that breaks in half precision": {
        "problem": HALF_BREAKS,
        "candidate": same(HALF_BREAKS),
        "precision": "bfloat16",
    },
}

MODEL = module("ModelNew", "return x")
DOUBLE = problem("return x * 2", sizes="rows, width = 4, 40")
ARGMAX = problem("return torch.argmax(x, dim=1)", sizes="rows, width = 4, 40")
WRONG = {
    "another dtype": {"problem": DOUBLE, "candidate": candidate("return (x * 2).double()")},
    "wrong integers": {"problem": ARGMAX, "candidate": candidate("return torch.argmin(x, dim=1)")},
    "a constructor that raises": {
        "problem": DOUBLE,
        "candidate": candidate("return x * 2", init="raise ValueError('no such width')"),
    },
    "another shape": {"problem": DOUBLE, "candidate": candidate("return x[:, 1:] * 2")},
}


HALF_ONLY = candidate(
    """
    if x.dtype is not torch.float16:
        raise TypeError(f"float16 is expected, not {x.dtype}")
    return x * 2
    """
)
FOR_BOTH = {
    "renamed parameters": {"problem": TWO_LAYERS, "candidate": RENAMED},
    "one precision alone": {"problem": DOUBLE, "candidate": HALF_ONLY, "precision": "float16"},
}


@pytest.fixture(scope="module")
def results(judge):
    return judge({**HONEST, **WRONG, **FOR_BOTH})


@pytest.mark.parametrize("name", HONEST)
def test_the_rule_rejects_and_the_contract_accepts(results, name):
    by_rule, by_contract = results["kernelbench"][name], results["contract"][name]
    assert by_rule.judged
    assert not by_rule.correctness
    assert by_contract.correctness, by_contract.metadata


@pytest.mark.parametrize("name", FOR_BOTH)
def test_what_both_accept_is_no_fault(results, name):
    for check in ("kernelbench", "contract"):
        result = results[check][name]
        assert result.correctness, result.metadata


@pytest.mark.parametrize(
    ("name", "key", "by_rule", "by_contract"),
    [
        ("another dtype", "runtime_error_name", "builtins.RuntimeError", None),
        ("another dtype", "correctness_issue_name", None, "PRC-01"),
        ("wrong integers", "runtime_error_name", "builtins.RuntimeError", None),
        ("wrong integers", "correctness_issue_name", None, "CMP-01"),
        ("a constructor that raises", "runtime_error_name", "ValueError", "ValueError"),
        ("another shape", "correctness_issue_name", "correctness_issue", "CMP-01"),
    ],
)
def test_a_wrong_kernel_is_called_what_it_is(results, name, key, by_rule, by_contract):
    for check, expected in (("kernelbench", by_rule), ("contract", by_contract)):
        result = results[check][name]
        assert result.compiled
        assert not result.correctness
        assert result.metadata.get(key) == expected, result.metadata


@pytest.mark.parametrize(
    "head",
    [
        '"""Forward pass, a single pass over all except the last row."""',
        "from triton import jit",
        "import triton.language as T",
        "class Settings:\n    pass",
    ],
)
def test_words_are_not_held_against_a_kernel(head):
    assert review(f"{head}\nimport torch\nimport torch.nn as nn\n{MODEL}") is None
