"""Settings of all tests."""

import atexit
import os
import shutil
import signal
import tempfile

from hypothesis import settings

# Nothing is timed in tests: imports, compilation and busy neighbours would fail them at random.
settings.register_profile("hios", deadline=None)
settings.load_profile("hios")

# Measurements of tests are no measurements for anyone else, processes that tests start included.
os.environ["HIOS_CACHE"] = tempfile.mkdtemp(prefix="hios-tests-")
atexit.register(shutil.rmtree, os.environ["HIOS_CACHE"], ignore_errors=True)

# A shell starts what it runs in the background with Ctrl-C ignored, and its children inherit that; tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
