from pathlib import Path

import pytest

from lethe_env.kernels import cute_dsl

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Nothing here runs without the DSL, which is an optional package."""
    if not cute_dsl.is_installed():
        for item in items:
            if item.path.parent == FOLDER:
                item.add_marker(pytest.mark.skip(reason=cute_dsl.MISSING))
