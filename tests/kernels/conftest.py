"""The virtual GPU for kernels that are called directly."""

from __future__ import annotations

import pytest
import torch
import triton

from lethe_env.vgpu.driver import VirtualDriver


@pytest.fixture
def gpu(monkeypatch):
    """The virtual GPU; memory that nobody has written is NaN, and no finding may be left."""
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    monkeypatch.setattr(triton.runtime.driver, "_active", None)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    driver = VirtualDriver()
    driver.activate()
    yield driver
    torch.use_deterministic_algorithms(False)
    assert driver.session.take_findings() == []
