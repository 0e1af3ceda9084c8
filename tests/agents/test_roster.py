"""Policies by name, and the command that lets one answer."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from lethe_env.agents.endpoint import EndpointPolicy
from lethe_env.agents.policy import PolicyError
from lethe_env.agents.roster import policy_named
from lethe_env.cli import app
from lethe_env.env import evaluation


def test_names_stand_for_policies():
    assert "elementwise/relu" in policy_named("expert").tasks
    assert "norm/group_norm" in policy_named("cheater").tasks
    endpoint = policy_named("endpoint:org/coder:7b")
    assert isinstance(endpoint, EndpointPolicy)
    assert endpoint.model == "org/coder:7b"


@pytest.mark.parametrize("name", ["", "genius", "local:", "endpoint"])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(PolicyError, match="known: expert, cheater"):
        policy_named(name)


def test_the_command_grades_what_the_policy_writes(reader, monkeypatch):
    monkeypatch.setattr(evaluation, "connect", lambda options, workers: reader)
    result = CliRunner().invoke(
        app, ["policy", "expert", "--task", "elementwise/relu", "--samples", "2", "--json"]
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["samples"] == 2
    assert {job.task.id for job in reader.seen} == {"elementwise/relu"}
