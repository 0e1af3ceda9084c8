from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from lethe_env.cell import Limits
from lethe_env.service.jobs import Job
from lethe_env.service.options import GraderOptions


def test_jobs_are_told_apart_by_what_is_graded(double):
    job = Job(double, "x = 1")
    assert job.digest == Job(replace(double, origin="elsewhere"), "x = 1").digest
    assert job.digest != Job(double, "x = 2").digest
    assert job.digest != Job(replace(double, gradients=True), "x = 1").digest
    assert Job(double, "\ud800").digest != Job(double, "?").digest


def test_options_come_back_from_json_equal_and_with_the_same_digest():
    options = GraderOptions(
        device="interpreter",
        targets=("sm_90",),
        seed=7,
        limits=Limits(load_seconds=3.0),
        cache=Path("/somewhere"),
        fail_fast=True,
    )
    again = GraderOptions.from_json(json.loads(json.dumps(options.to_json())))
    assert again == options
    assert again.digest == options.digest
    assert again.grader().limits.load_seconds == 3.0
    without = replace(options, cache=None)
    assert GraderOptions.from_json(without.to_json()) == without


def test_every_option_is_in_the_digest_and_reaches_the_grader():
    options = GraderOptions()
    changes = {
        "device": "vgpu",
        "targets": (),
        "seed": 1,
        "limits": Limits(processes=1),
        "call_seconds": 2.0,
        "cache": None,
        "fail_fast": True,
        "architecture": 90,
    }
    assert set(changes) == set(options.to_json())
    for name, value in changes.items():
        changed = replace(options, **{name: value})
        assert changed.digest != options.digest, name
        assert getattr(changed.grader(), name) == value
