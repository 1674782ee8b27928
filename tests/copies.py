"""The two ways in which an object is copied with all that hangs on it."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import pytest


def pickled(original: Any) -> Any:
    return pickle.loads(pickle.dumps(original))  # noqa: S301  # what a test wrote itself


_WAYS = {"pickle": pickled, "deepcopy": deepcopy}
copied_both_ways = pytest.mark.parametrize("copied", _WAYS.values(), ids=_WAYS)
