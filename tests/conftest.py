"""Shared fixtures: where reference data lies, when it is there."""

import os
from pathlib import Path

# Tests run many small programs once, so compiling is most of their time; speed is measured in benchmarks/.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Nor do tests write to the user's cache folder.
os.environ.setdefault("VSR_COMPILATION_CACHE", "off")

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = Path(__file__).resolve().parent / "samples"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Reference data beside the repository: large benchmark files and checker verdicts that are not shipped."""
    path = Path(os.environ.get("VSR_SHARED", ROOT.parent / "shared"))
    if not (path / "data").is_dir():
        pytest.skip(f"reference data not found at {path}; set VSR_SHARED to its directory to run this test")
    return path


@pytest.fixture(scope="session")
def samples_dir() -> Path:
    """Small committed samples of the reference data."""
    return SAMPLES
