"""No network, no experimental warnings, and the fake verifier."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import pytest

from lethe_env.tasks.catalog import suite

from .fakes import TASK, FakeVerifier


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier()


@pytest.fixture(scope="session")
def task():
    return suite()[TASK]
