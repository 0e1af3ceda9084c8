import pytest

from lethe_env.vgpu.cute import toolkit


def pytest_collection_modifyitems(items):
    """Nothing here runs without the DSL, which is an optional package."""
    if not toolkit.is_installed():
        for item in items:
            if item.path.parent.name == "cute":
                item.add_marker(pytest.mark.skip(reason=toolkit.MISSING))
