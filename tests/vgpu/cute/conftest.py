import pytest

from lethe_env.kernels import cute_dsl


def pytest_collection_modifyitems(items):
    """Nothing here runs without the DSL, which is an optional package."""
    if not cute_dsl.is_installed():
        for item in items:
            if item.path.parent.name == "cute":
                item.add_marker(pytest.mark.skip(reason=cute_dsl.MISSING))
