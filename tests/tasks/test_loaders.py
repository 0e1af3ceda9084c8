import json

import pyarrow
import pyarrow.parquet
import pytest

from lethe_env.tasks.catalog import find_task, load_tasks, suite, task_loaders
from lethe_env.tasks.effort import call_units, output_elements
from lethe_env.tasks.model import TaskError
from lethe_env.tasks.shrinking import (
    BASE_BUDGET_ELEMENTS,
    BASE_BUDGET_UNITS,
    OUTPUT_BUDGET_ELEMENTS,
    VARIED_BUDGET_CALLS,
    fitted_family,
    input_elements,
    widest_member,
)
from lethe_env.tasks.table import Columns, load_table

SOFTMAX = """
import torch
import torch.nn as nn

batch_size = 4096
dim = 393216

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.softmax(x, dim=1)

def get_inputs():
    return [torch.rand(batch_size, dim)]

def get_init_inputs():
    return []
"""

CONV = """
import torch
import torch.nn as nn

batch_size = 16
in_channels = 32
out_channels = 64
kernel_size = 3
height = 512
width = 512

class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        return self.conv(x)

def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]

def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
"""


@pytest.mark.parametrize("source", [SOFTMAX, CONV])
def test_a_foreign_module_is_shrunk_to_the_budget_and_still_runs(source):
    family = fitted_family(source, "test")
    assert input_elements(source, family.base, "test") <= 2 * BASE_BUDGET_ELEMENTS
    assert input_elements(source, {}, "test") > 100 * BASE_BUDGET_ELEMENTS
    assert len(family.variants()) >= 5


DEEP = SOFTMAX.replace("torch.softmax(x, dim=1)", "self.run(x)").replace(
    "    def forward",
    """    def run(self, x):
        for _ in range(40):
            x = torch.tanh(x) + x
        return x

    def forward""",
)
"""Eighty operations on every element."""


def test_an_expensive_reference_gets_smaller_shapes_and_fewer_variations():
    deep, plain = fitted_family(DEEP, "deep"), fitted_family(SOFTMAX, "plain")
    assert input_elements(DEEP, deep.base, "deep") < input_elements(SOFTMAX, plain.base, "plain")
    assert max(deep.base.values()) > 128
    assert all(1 in values for values in deep.vary.values())
    together = sum(call_units(DEEP, sizes, "deep") for sizes in deep.variants())
    base = call_units(DEEP, deep.base, "deep")
    assert together <= VARIED_BUDGET_CALLS * max(base, BASE_BUDGET_UNITS)


def test_sizes_that_do_not_carry_the_cost_are_left_alone():
    costly = SOFTMAX.replace(
        "super().__init__()",
        "super().__init__(); self.weight = torch.nn.Parameter(torch.zeros(1 << 23))",
    )
    assert fitted_family(costly, "costly").base == fitted_family(SOFTMAX, "plain").base


def test_one_dimension_stays_beyond_a_block_and_is_prime():
    family = fitted_family(SOFTMAX, "test")
    assert family.base["dim"] == 1031
    assert family.long["dim"] > 4096
    assert 1 in family.vary["dim"]


def test_the_long_member_lengthens_the_reduced_size():
    source = """
import torch
M, K, N = 1024, 4096, 2048
class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]
def get_init_inputs():
    return []
"""
    family = fitted_family(source, "test")
    assert family.long["K"] > 4000
    assert family.long["M"] <= 3
    assert family.long["N"] <= 3


def test_shrinking_never_touches_what_is_no_size():
    source = SOFTMAX.replace("dim=1)", "dim=axis)").replace("dim = 393216", "dim = 8192\naxis = 1")
    assert "axis" not in fitted_family(source, "test").base


def test_a_reference_that_runs_nowhere_is_the_tasks_fault():
    source = SOFTMAX.replace("torch.softmax(x, dim=1)", "x.no_such_method()")
    with pytest.raises(TaskError, match="the reference fails at"):
        fitted_family(source, "broken.py")


def test_a_kernelbench_folder_is_read_in_order(tmp_path):
    folder = tmp_path / "level1"
    folder.mkdir()
    for name in ("10_B.py", "9_Softmax.py"):
        (folder / name).write_text(SOFTMAX)
    tasks = list(load_tasks(str(tmp_path)))
    assert [task.id for task in tasks] == ["level1/9_Softmax", "level1/10_B"]
    assert tasks[0].op_class == "softmax"
    assert tasks[0].level == 1


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_table_with_kernelbenchs_columns(tmp_path, kind):
    row = {"code": CONV, "level": 2, "name": "3_Conv", "problem_id": 3}
    path = tmp_path / f"table.{kind}"
    if kind == "jsonl":
        path.write_text(json.dumps(row) + "\n\n")
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    (task,) = load_table(str(path))
    assert task.id == "level2/3_Conv"
    assert task.op_class == "conv"
    assert task.allow_tf32


def test_bad_tables_say_what_is_wrong(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"code": 1')
    with pytest.raises(TaskError, match="line 1 is not JSON"):
        list(load_table(str(path)))
    path.write_text('{"text": "x"}')
    with pytest.raises(TaskError, match=r"no column 'code' in row 0; it has text"):
        list(load_table(str(path)))
    with pytest.raises(TaskError, match="no table at"):
        list(load_table(str(tmp_path / "none.parquet")))
    with pytest.raises(TaskError, match="owner/name of a dataset"):
        list(load_table("nothing"))
    path.write_text(json.dumps({"source": SOFTMAX}))
    (task,) = load_table(str(path), Columns(source="source"))
    assert task.id == "row0"


def test_the_suite_is_found_by_name_and_a_wrong_name_gets_a_hint():
    assert len(suite()) >= 48
    assert find_task("softmax/softmax").op_class == "softmax"
    with pytest.raises(TaskError, match="did you mean softmax/softmax"):
        find_task("softmax")
    with pytest.raises(TaskError, match=r"no task file at nowhere\.py"):
        find_task("nowhere.py")


def source(forward: str, inputs: str, sizes: str) -> str:
    return (
        f"import torch\n{sizes}\nclass Model(torch.nn.Module):\n    def forward(self, *x):\n"
        f"        return {forward}\ndef get_inputs():\n    return [{inputs}]\n"
        "def get_init_inputs():\n    return []\n"
    )


def test_the_entries_of_a_tuple_are_sizes_too():
    scan = source("x[0].cumsum(1)", "torch.rand(n, *shape)", "n = 32768\nshape = (32768,)")
    family = fitted_family(scan, "scan")
    assert family.base == {"n": 64, "shape[0]": 1031}
    assert family.vary["shape[0]"]


def test_a_large_output_of_small_inputs_is_made_smaller():
    outer = source("x[0] @ x[1]", "torch.rand(m, k), torch.rand(k, m)", "m, k = 32768, 32")
    family = fitted_family(outer, "outer")
    assert output_elements(outer, family.base, "outer") <= OUTPUT_BUDGET_ELEMENTS


def test_one_axis_of_many_is_beyond_a_block():
    norm = source(
        "x[0] / x[0].norm(dim=1, keepdim=True)",
        "torch.rand(n, c, h, w)",
        "n, c, h, w = 112, 64, 512, 512",
    )
    family = fitted_family(norm, "norm")
    assert max(family.base.values()) == 131
    assert min(family.base.values()) >= 2
    assert input_elements(norm, family.base, "norm") <= BASE_BUDGET_ELEMENTS


def test_a_contracted_size_does_not_count_rows():
    product = source(
        "x[0].T @ x[1]", "torch.rand(k, m), torch.rand(k, n)", "k, m, n = 8192, 2048, 4096"
    )
    assert fitted_family(product, "product").base["k"] >= 128


def test_sizes_that_have_to_be_equal_shrink_together():
    hinge = source(
        "(x[0] * x[1]).mean()", "torch.rand(n, *shape), torch.rand(n)", "n = 4096\nshape = (4096,)"
    )
    assert fitted_family(hinge, "hinge").base == {"n": 131, "shape[0]": 131}


def test_inputs_that_cannot_be_made_smaller_are_not_even_tried():
    fixed = source("x[0]", "torch.rand(20000, 20000)", "")
    with pytest.raises(TaskError, match="400000000 elements"):
        fitted_family(fixed, "fixed")


def test_a_reference_that_is_not_python_is_the_tasks_fault(tmp_path):
    path = tmp_path / "1_Broken.py"
    path.write_text("def (")
    with pytest.raises(TaskError, match="not Python"):
        find_task(str(path))


def test_the_widest_member_keeps_the_width():
    softmax = SOFTMAX.replace("4096", "512")
    base = {"batch_size": 8, "dim": 1031}
    wide = {"batch_size": 2, "dim": 393216}
    assert widest_member(softmax, "softmax", base, 1 << 20) == wide
    assert widest_member(softmax, "softmax", base, 1 << 18) == base
    assert widest_member(softmax, "softmax", base, 1 << 28) == {}


def test_problems_are_named_before_they_are_loaded(tmp_path):
    (tmp_path / "level1").mkdir()
    (tmp_path / "level2").mkdir()
    (tmp_path / "level1" / "2_Broken.py").write_text("def (")
    (tmp_path / "level1" / "1_Softmax.py").write_text(SOFTMAX)
    (tmp_path / "level2" / "1_Softmax.py").write_text(SOFTMAX)
    loaders = dict(task_loaders(str(tmp_path), level=1))
    assert list(loaders) == ["level1/1_Softmax", "level1/2_Broken"]
    assert loaders["level1/1_Softmax"]().level == 1
    with pytest.raises(TaskError, match="level 3"):
        list(task_loaders(str(tmp_path), level=3))


ATTENTION = find_task("attention/causal_attention").source


def test_a_heads_width_is_not_raised():
    family = fitted_family(ATTENTION, "attention")
    assert family.base["head_dim"] <= 64 and family.long["head_dim"] <= 64
    assert family.long["length"] > 128
    short = ATTENTION.replace("length = 512", "length = 48")
    assert short != ATTENTION
    assert max(fitted_family(short, "short").long.values()) <= 64


def test_a_narrow_row_that_is_no_head_is_raised():
    narrow = SOFTMAX.replace("batch_size = 4096\ndim = 393216", "batch_size = 64\ndim = 64")
    family = fitted_family(narrow, "narrow")
    assert family.base["dim"] > 128 and family.long["dim"] > 4096
