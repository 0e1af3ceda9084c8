import pytest

from lethe_env.kernels import cute_dsl


@pytest.fixture(scope="session")
def dsl():
    """For tests that compile: the DSL is an optional package."""
    if not cute_dsl.is_installed():
        pytest.skip(cute_dsl.MISSING)
