from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from lethe_env.cell import HarnessError
from lethe_env.service import client, rendezvous
from lethe_env.service.options import GraderOptions


def test_the_folder_is_private_and_near_the_other_runtime_files(monkeypatch):
    with tempfile.TemporaryDirectory() as name:  # `tmp_path` may be too long for a socket
        short = Path(name)
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        folder = rendezvous.private_folder()
        assert folder == short / "lethe"
        assert folder.stat().st_mode & 0o777 == 0o700
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short / "missing"))
        monkeypatch.setattr("tempfile.tempdir", name)
        assert rendezvous.private_folder() == short / f"lethe-brokers-{os.getuid()}"


def test_a_path_too_long_for_a_socket_is_avoided_or_named(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    path = rendezvous.address(GraderOptions(cache=None))
    assert str(path).startswith("/tmp/")
    assert len(str(path)) <= rendezvous.ADDRESS_BYTES
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(HarnessError, match="too long for a Unix socket"):
        rendezvous.private_folder()


def test_a_folder_that_others_can_enter_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "lethe").mkdir(mode=0o755)
    with pytest.raises(HarnessError, match="nobody else can enter"):
        rendezvous.private_folder()
    (tmp_path / "lethe").rmdir()
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "lethe").symlink_to(tmp_path / "other")
    with pytest.raises(HarnessError, match="nobody else can enter"):
        rendezvous.private_folder()


def test_other_options_or_other_code_meet_at_another_socket(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    options = GraderOptions(cache=None)
    here = rendezvous.address(options)
    assert rendezvous.address(replace(options, fail_fast=True)) != here
    monkeypatch.setattr("lethe_env.service.rendezvous.code_fingerprint", lambda: "edited")
    assert rendezvous.address(options) != here


def test_the_lock_is_held_by_one_and_freed_by_its_end(tmp_path, monkeypatch):
    path = tmp_path / "a.sock"
    code = (
        "import sys, time; from pathlib import Path; from lethe_env.service import rendezvous\n"
        "with rendezvous.locked(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(99)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        monkeypatch.setattr(rendezvous, "_LOCK_SECONDS", 0.2)
        with pytest.raises(HarnessError, match="held too long"), rendezvous.locked(path):
            pass
        holder.kill()
    with rendezvous.locked(path):
        pass


def test_the_kernel_says_who_is_at_the_other_end(tmp_path, monkeypatch):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with client._dial(path) as channel:
            assert rendezvous.peer(channel) == (os.getpid(), os.getuid())
        monkeypatch.setattr(client, "peer", lambda channel: (1, os.getuid() + 1))
        with pytest.raises(HarnessError, match="belongs to user"):
            client._dial(path)
    assert client._dial(path) is None
