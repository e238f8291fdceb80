"""Test settings that every room shares."""

import os
import tempfile

# One BLAS thread: results and run times should not hang on the machine's core count. Before NumPy.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("MPLCONFIGDIR", tempfile.mkdtemp(prefix="minitx-mpl-"))

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# No deadline: the first call of a compiled kernel takes seconds, and that is not a fault.
_common = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
}
settings.register_profile("default", max_examples=40, **_common)
settings.register_profile("ci", max_examples=40, derandomize=True, **_common)
settings.register_profile("thorough", max_examples=500, **_common)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default")
)


@pytest.fixture
def rng() -> np.random.Generator:
    """A fixed stream of random numbers."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def global_random_state_is_untouched():
    """No function of the package may move NumPy's global generator."""
    before = np.random.get_state()  # noqa: NPY002
    yield
    after = np.random.get_state()  # noqa: NPY002
    assert before[2] == after[2] and np.array_equal(before[1], after[1]), (
        "the global random state was moved"
    )
