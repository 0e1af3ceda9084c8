"""The house: one import name, rooms that refuse their bare names, and what imports what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("gates", "tasks", "kernels", "agents")


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code as a notebook in the root would, with the root on the path."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_refuses_its_bare_name(room):
    result = python(f"import {room}")
    assert result.returncode != 0
    assert f"import lethe_env.{room}" in result.stderr


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_one_package_under_the_one_name(room):
    result = python(f"import lethe_env.{room} as r; print(r.__name__)")
    assert result.stdout.strip() == f"lethe_env.{room}", result.stderr


def test_transformers_does_not_take_our_kernels_for_its_own():
    code = "import lethe_env; from transformers.utils import is_kernels_available as known"
    result = python(f"{code}; print(known())")
    assert result.stdout.strip() == "False", result.stderr


@pytest.mark.parametrize(
    "module", ["gates.battery", "gates.lint", "tasks.catalog", "tasks.table", "kernels.controls"]
)
def test_gates_and_tasks_need_no_triton(module):
    code = f"import sys; import lethe_env.{module}; print('triton' in sys.modules)"
    result = python(code)
    assert result.stdout.strip() == "False", result.stderr


def test_no_file_is_a_library():
    long = [
        f"{path.relative_to(ROOT)}: {count}"
        for folder in ("lethe_env", "gates", "tasks", "agents")
        for path in (ROOT / folder).rglob("*.py")
        if not path.is_symlink() and (count := len(path.read_text().splitlines())) > 400
    ]
    assert long == []


def test_every_command_in_the_documents_exists():
    from lethe_env.cli import app

    def names(of):
        return {command.name or command.callback.__name__ for command in of.registered_commands}

    known = names(app)
    groups = {group.name: names(group.typer_instance) for group in app.registered_groups}
    lines = [
        line.split()
        for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        for line in document.read_text().splitlines()
        if line.startswith("    .venv/bin/lethe ")
    ]
    assert len(lines) >= 8
    for _, command, *rest in lines:
        assert command in known or rest[0] in groups.get(command, ()), command


def test_ci_runs_what_a_contributor_runs():
    assert "make test" in (ROOT / ".ci" / "run").read_text()
