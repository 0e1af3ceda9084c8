"""What the interpreter gets wrong and the virtual GPU right, one test per line of the table."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("untruths.py")
LOAD_LINE = 1 + next(
    number
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1)
    if line.startswith("def unmasked_copy")
)


def _run(way, folder):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / way)}
    environment.pop("TRITON_INTERPRET", None)
    if way == "interpreter":
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, str(PROGRAM), way]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def vgpu(tmp_path_factory):
    return _run("vgpu", tmp_path_factory.mktemp("triton"))


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory):
    return _run("interpreter", tmp_path_factory.mktemp("triton"))


def test_maximum_drops_nan(vgpu, interpreter):
    assert vgpu["values"]["maximum"] == 0
    assert math.isnan(interpreter["values"]["maximum"])


def test_products_of_float32_are_tf32_by_default(vgpu, interpreter):
    assert vgpu["values"]["product"] == 1
    assert interpreter["values"]["product"] == 1 + 2**-12


def test_sums_of_float16_round_at_every_step(vgpu, interpreter):
    # 2048 + 31 ones: 2079 lies between 2078 and 2080, and rounding once gives 2080
    assert vgpu["values"]["total"] == 2078
    assert interpreter["values"]["total"] == 2080


def test_bfloat16_is_added_as_numbers(vgpu, interpreter):
    assert vgpu["values"]["addition"] == 4.5
    assert interpreter["values"]["addition"] != 4.5


def test_exp_is_the_fast_one(vgpu, interpreter):
    # exp(x) is 2**(x·log2 e) with the product rounded: at 80 its error is tens of ulps
    assert 1e-6 < vgpu["values"]["exponential"] < 1e-5
    assert interpreter["values"]["exponential"] < 2e-7


def test_reads_out_of_range_are_reported(vgpu, interpreter):
    assert interpreter["accesses"]["copied"] == [24, 25, 26, 27, 28, 29, 30, 31]
    assert vgpu["accesses"]["copied"] != interpreter["accesses"]["copied"]
    kinds = [(kind, kernel) for kind, kernel, *_ in vgpu["findings"]]
    assert ("out_of_bounds", "unmasked_copy") in kinds


def test_findings_name_their_line(vgpu):
    lines = {line for _, kernel, line, file in vgpu["findings"] if kernel == "unmasked_copy"}
    assert lines == {LOAD_LINE + 1}


def test_races_between_programs_are_reported(vgpu, interpreter):
    assert interpreter["accesses"]["count"] == 8
    assert interpreter["findings"] == []
    assert any(kind == "race" and kernel == "counter" for kind, kernel, *_ in vgpu["findings"])


def test_reads_of_undefined_memory_are_reported(vgpu):
    kinds = [(kind, kernel) for kind, kernel, *_ in vgpu["findings"]]
    assert ("uninitialised_read", "copy_of_nothing") in kinds


def test_sound_kernels_leave_no_findings(vgpu):
    assert vgpu["clean"] == 0
