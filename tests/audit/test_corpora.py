"""Corpora as they come, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from lethe_env.audit import records
from lethe_env.audit.corpora import Unusable
from lethe_env.audit.presets import open_corpus
from lethe_env.audit.records import CorpusError
from lethe_env.audit.row import Recorded, Row

REFERENCE = "class Model: ...\n"
KERNEL = "class ModelNew: ...\n"
TABLE = [
    {"id": "a", "reference": REFERENCE, "candidate": KERNEL, "verdict": True, "speedup": 1.5},
    {"id": "b", "reference": REFERENCE, "candidate": KERNEL, "verdict": "wrong", "message": "no"},
    {"id": None, "reference": REFERENCE, "candidate": KERNEL, "speedup": float("nan")},
]


def jsonl(path, rows):
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return str(path)


def test_a_table_says_what_it_records(tmp_path):
    parquet.write_table(
        pyarrow.Table.from_pylist([{**row, "verdict": str(row.get("verdict"))} for row in TABLE]),
        tmp_path / "t.parquet",
    )
    for table in (jsonl(tmp_path / "t.jsonl", TABLE), str(tmp_path / "t.parquet")):
        first, second, third = open_corpus(table)
        assert (first.id, first.reference, first.candidate) == ("a", REFERENCE, KERNEL)
        assert (first.recorded_verdict, first.recorded_speedup) == (Recorded.ACCEPTED, 1.5)
        assert second.recorded_verdict is Recorded.REJECTED
        assert third.id == "row3" and third.recorded_verdict is None
        assert third.recorded_speedup is None and third.origin.endswith("3")


def test_a_saved_data_set_is_a_table(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"code": REFERENCE, "kernel": KERNEL}] * 2
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    names = {"reference": "code", "candidate": "kernel"}
    assert [row.id for row in open_corpus(str(tmp_path / "saved"), "", names)] == ["row1", "row2"]


def test_what_cannot_be_read_is_said_and_the_rest_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "LINE_BYTES", 2000)
    rows = [
        TABLE[0],
        '{"id": "cut',
        "[1]",
        {"id": "lacks", "reference": REFERENCE},
        {"id": "blank", "reference": " ", "candidate": KERNEL},
        {"id": "number", "reference": REFERENCE, "candidate": 7},
        "",
        json.dumps({"id": "long", "reference": "x" * 5000}),
        TABLE[1],
    ]
    items = list(open_corpus(jsonl(tmp_path / "t.jsonl", rows)))
    assert [type(item) for item in items] == [Row, *[Unusable] * 6, Row]
    reasons = {item.id: item.reason for item in items[1:7]}
    assert reasons["row2"].startswith("not JSON")
    assert reasons["row3"] == "not a JSON object"
    assert reasons["lacks"] == "the field 'candidate' holds no source"
    assert reasons["blank"] == "the field 'reference' holds no source"
    assert reasons["number"] == "the field 'candidate' holds no source"
    assert reasons["row8"] == "longer than 2000 bytes"
    assert items[1].origin == "t.jsonl line 2"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.jsonl",), "no table at"),
        (("{here}",), "PROBLEM/reference.py"),
        (("{here}/t.jsonl", "", {"candidate": "kernel"}), "--column candidate=NAME"),
        (("{here}/t.jsonl", "", {"kernel": "kernel"}), "no column is a 'kernel'"),
        (("{here}/t.jsonl", "nonsense"), "no preset 'nonsense'"),
        (("{here}", "llmkernel"), "needs --references"),
        (("{here}", "llmkernel", None, Path("/absent")), "no folder of references at /absent"),
        (("{here}", "folder", {"id": "x"}), "has no columns"),
        (("{here}/absent", "folder"), "no folder at"),
        (("{here}/torn.parquet",), "cannot be read beyond row 0"),
    ],
)
def test_a_corpus_that_is_not_one_says_so(tmp_path, arguments, words):
    jsonl(tmp_path / "t.jsonl", TABLE)
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    first, *rest = arguments
    with pytest.raises(CorpusError, match=words):
        list(open_corpus(first.format(here=tmp_path), *rest))


def test_dr_kernel_ends_a_chat_with_the_kernel(tmp_path):
    def chat(*texts):
        return [{"role": "user", "content": f"```python\n{KERNEL}# asked\n```"}] + [
            {"role": "assistant", "content": text} for text in texts
        ]

    def block(note):
        return f"```python\n{KERNEL}# {note}\n```"

    rows = [
        {"uuid": 1, "messages": chat(block("old"), f"{block('early')}\nthen\n{block('last')}")},
        {"uuid": 2, "messages": json.dumps(chat(block("text"), "thanks")), "final_speedup": 0},
        {"uuid": 3, "messages": chat("no code at all"), "final_speedup": 2.0},
    ]
    rows[0]["final_speedup"] = 1.25
    rows = [{"original_python_code": REFERENCE, **row} for row in rows]
    first, second, third = open_corpus(jsonl(tmp_path / "t.jsonl", rows), "dr-kernel")
    assert first.candidate.strip() == f"{KERNEL}# last" and first.id == "1"
    assert (first.recorded_verdict, first.recorded_speedup) == (Recorded.ACCEPTED, 1.25)
    assert second.candidate.strip() == f"{KERNEL}# text"
    assert second.recorded_verdict is Recorded.REJECTED
    assert isinstance(third, Unusable) and "'messages' holds no source" in third.reason


def test_sakana_names_its_columns_otherwise(tmp_path):
    row = {
        "PyTorch_Code_Module": REFERENCE,
        "CUDA_Code": "__global__ void f() {}",
        "Correct": False,
        "CUDA_Speedup_Native": 3.0,
        "Error": "nvcc failed",
    }
    (found,) = open_corpus(jsonl(tmp_path / "t.jsonl", [row]), "sakana")
    assert found.candidate.startswith("__global__")
    assert (found.recorded_verdict, found.recorded_reason) == (Recorded.REJECTED, "nvcc failed")


@pytest.fixture
def references(tmp_path):
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_Square.py").write_text(REFERENCE)
    return folder.parent


def test_a_run_of_kernelbench_pairs_kernels_with_results(tmp_path, references):
    run = tmp_path / "run"
    run.mkdir()
    for problem, sample in ((1, 0), (1, 1), (1, 10), (2, 0)):
        (run / f"level_1_problem_{problem}_sample_{sample}_kernel.py").write_text(KERNEL)
    (run / "level_1_problem_1_sample_0_prompt.txt").write_text("x")
    right = {"sample_id": 0, "correctness": True, "runtime": 2.0, "ref_runtime": 3.0}
    wrong = {"sample_id": 1, "correctness": False, "metadata": {"runtime_error": "boom"}}
    results = {"1": [right, wrong]}
    (run / "eval_results.json").write_text(json.dumps(results))
    first, second, third, fourth = open_corpus(str(run), "kernelbench-run", None, references)
    assert first.id == "level_1_problem_1_sample_0" and first.recorded_speedup == 1.5
    assert first.recorded_verdict is Recorded.ACCEPTED
    assert (second.recorded_verdict, second.recorded_reason) == (Recorded.REJECTED, "boom")
    assert third.id.endswith("sample_10") and third.recorded_verdict is None
    assert isinstance(fourth, Unusable) and "0 references match level1/2_" in fourth.reason


def evaluation(runnable, name, **fields):
    return json.dumps({"runnable": runnable, "candidate_file": f"/x/code/{name}", **fields})


def test_llmkernel_pairs_by_order_and_believes_no_wrong_pair(tmp_path, references):
    problem = tmp_path / "repo" / "results" / "level1" / "1_Square"
    for name in ("code", "evaluation"):
        (problem / name).mkdir(parents=True)
    names = ["kernel_20250101_1.py", "kernel_20250101_2.py", "kernel_20250101_3.py"]
    for name in names:
        (problem / "code" / name).write_text(KERNEL)
    texts = [
        evaluation(True, names[0], score=2.0),
        json.dumps({"runnable": False, "message": "line\n" * 999 + "ValueError: boom"}),
        evaluation(True, names[0], score=2.0),
    ]
    for number, text in zip((4, 7, 10), texts, strict=True):
        (problem / "evaluation" / f"eval_{number:04d}.json").write_text(text)
    first, second, third = open_corpus(str(tmp_path / "repo"), "llmkernel", None, references)
    assert (first.id, first.recorded_speedup) == ("level1/1_Square/kernel_20250101_1", 2.0)
    assert first.weights_by_shape and first.evaluation_mode
    assert second.recorded_verdict is Recorded.REJECTED
    assert second.recorded_reason.endswith("boom") and len(second.recorded_reason) <= 600
    assert isinstance(third, Unusable) and third.reason == f"eval_0010.json is about {names[0]}"
    (problem / "evaluation" / "eval_0010.json").unlink()
    reasons = {
        item.reason for item in open_corpus(str(tmp_path / "repo"), "llmkernel", None, references)
    }
    assert reasons == {"3 sources and 2 evaluations cannot be paired"}


def test_a_folder_holds_a_reference_beside_its_candidates(tmp_path):
    for problem in ("relu", "silu"):
        (tmp_path / problem).mkdir()
        (tmp_path / problem / "reference.py").write_text(REFERENCE)
        (tmp_path / problem / "mine.py").write_text(KERNEL)
    (tmp_path / "relu" / "latin.py").write_bytes(b"# \xff")
    latin, mine, other = open_corpus(str(tmp_path))
    assert (mine.id, other.id) == ("relu/mine", "silu/mine")
    assert isinstance(latin, Unusable) and "latin.py cannot be read" in latin.reason
