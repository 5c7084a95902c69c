"""Tests that need two cores: skipped with a reason where there is one."""

from __future__ import annotations

import os

import pytest

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
