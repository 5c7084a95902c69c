"""Tests that need OpenVINO, an extra: skipped with a reason where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

needs_openvino = pytest.mark.skipif(find_spec("openvino") is None, reason="needs OpenVINO")
#: The way of hios.optimize as the parameter of a test.
OPENVINO = pytest.param("openvino", marks=needs_openvino)
