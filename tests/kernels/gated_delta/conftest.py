import pytest
import triton

from lethe_env.vgpu.driver import VirtualDriver


@pytest.fixture(scope="module")
def virtual_gpu():
    """The virtual GPU as Triton's device; whatever it found wrong by the end fails the module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
        patch.setattr(triton.runtime.driver, "_active", None)
        driver = VirtualDriver()
        driver.activate()
        yield driver
        assert driver.session.take_findings() == []
