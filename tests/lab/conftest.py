"""The made-up experiments, loaded as a user's file would be."""

from pathlib import Path

import pytest

from minitx.lab.loading import experiments_in

MADE_UP = Path(__file__).with_name("made_up.py")


@pytest.fixture(scope="session")
def made_up():
    """{short name: experiment} of ``made_up.py``."""
    return {each.name.split(".")[1]: each for each in experiments_in(MADE_UP)}
