"""Builds the device's library, once for all tests of a process."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

HERE = Path(__file__).parent
_built = TemporaryDirectory(prefix="queued-device-")


@functools.cache
def built_library() -> Path:
    """The library, for the variable QUEUED_DEVICE_LIBRARY."""
    if shutil.which("g++") is None:
        assert "CI" not in os.environ, "g++ must be there in CI"
        # A developer may do without a compiler; CI, which installs one, may not.
        pytest.skip("needs g++")
    of_torch = Path(torch.__file__).parent
    library = Path(_built.name, "device.so")
    # As torch's own headers ask for it, whose warnings are not ours.
    options = ["-std=c++20", "-O1", "-Wall", "-shared", "-fPIC", "-isystem", of_torch / "include"]
    links = ["-L", of_torch / "lib", "-ltorch_cpu", "-lc10"]
    subprocess.run(["g++", *options, HERE / "device.cpp", "-o", library, *links], check=True)
    return library
