"""The adapter for published verdicts, on rows of the same layout made up here."""

from __future__ import annotations

import gzip
import json

import pytest

from lethe_env.audit.population import Population
from lethe_env.audit.published import outcome_of, read_published
from lethe_env.audit.rate import Rate
from lethe_env.audit.row import Recorded, Stage
from lethe_env.audit.tables import class_table, floor_table, gate_table, headline


def gated(name, op_class="matmul", speedup=1.0, aliasing=False, **gates):
    findings = {"CMP-01": ("pass", ""), "EXC-01": ("pass", "")}
    findings |= {gate.replace("_", "-"): said for gate, said in gates.items()}
    return {
        "id": name,
        "status": "gated",
        "op_class": op_class,
        "final_speedup": speedup,
        "elapsed_s": 2.0,
        "native_shape": [4, 8],
        "output_aliasing": aliasing,
        "multi_output": False,
        "primary_idx": 0,
        "gates": {
            gate: {"status": status, "reason": reason, "skipped": 0}
            for gate, (status, reason) in findings.items()
        },
    }


def unjudged(name, status, error, op_class="matmul", speedup=1.0):
    return {
        "id": name,
        "status": status,
        "op_class": op_class,
        "final_speedup": speedup,
        "elapsed_s": 2.0,
        "error": error,
    }


FAIL, BROKE = ("fail", "max_err"), ("error", "gate crashed: CUDA error: assert")
ROWS = [
    gated("1"),
    gated("2", CMP_01=FAIL),
    gated("3", "scan", EXC_01=("fail", "NaN mask"), CMP_03=("na", "reference")),
    gated("4", aliasing=True),
    gated("5", CMP_01=("pass", ""), EXC_01=BROKE),
    gated("6", EXC_01=("error", "gate crashed: complex inputs")),
    gated("7", speedup=0.0, CMP_01=FAIL),
    unjudged("8", "cand_native_fail", "CompilationError: at 3:4"),
    unjudged("9", "cand_load_fail", "SyntaxError: invalid", "scan"),
    unjudged("10", "sandbox_timeout", ""),
    unjudged("11", "not_auditable", "no floating-point tensor input"),
    unjudged("12", "ref_broken", "RuntimeError", speedup=0.0),
    unjudged("13", "cand_native_fail", "PTXASError: no", speedup=0.0),
]


@pytest.fixture(scope="module")
def population():
    return Population(map(outcome_of, ROWS))


def test_waterfall(population):
    assert [step.rows for step in population.waterfall()] == [13, 13, 10, 9, 8, 8]


def test_the_paper_counts_aliasing_for_the_floor_only(population):
    found = headline(population)
    assert found.violation == Rate(5, 8)
    assert found.floor == Rate(5, 8)
    assert found.floor_only == 1
    assert [row.rate.hits for row in floor_table(population)] == [1, 0, 1, 1, 2]


def test_gates_and_classes(population):
    rates = {row.gate: row.rate for row in gate_table(population)}
    assert rates == {"CMP-01": Rate(1, 6), "CMP-03": Rate(0, 0), "EXC-01": Rate(1, 4)}
    assert [(row.op_class, row.violation) for row in class_table(population)] == [
        ("matmul", Rate(3, 6)),
        ("scan", Rate(2, 2)),
    ]


def test_what_a_row_keeps():
    outcome = outcome_of(ROWS[1])
    assert outcome.native_shapes == ((4, 8),)
    assert outcome.recorded_verdict is Recorded.ACCEPTED
    assert outcome.reasons == {"CMP-01": "max_err"}
    assert outcome_of(ROWS[9]).fault == "no answer within the time limit"
    assert outcome_of(ROWS[7]).stage is Stage.ARTIFACT


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_broken_lines_are_said_and_skipped(tmp_path, name):
    lines = [json.dumps(ROWS[0]), "{", json.dumps({"id": "x"}), json.dumps(ROWS[2]), "[]"]
    lines.append(json.dumps({**ROWS[8], "status": "lost"}))
    text = "\n".join(lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    problems = []
    found = [row.id for row in read_published(tmp_path / name, problems.append)]
    assert found == ["1", "3"]
    assert [problem.line for problem in problems] == [2, 3, 5, 6]
    assert "'final_speedup'" in problems[1].problem
    assert "unknown status 'lost'" in problems[3].problem
