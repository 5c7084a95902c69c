"""Settings of all tests."""

import signal

from hypothesis import settings

# Nothing is timed in tests: imports, compilation and busy neighbours would fail them at random.
settings.register_profile("hios", deadline=None)
settings.load_profile("hios")

# A shell starts what it runs in the background with Ctrl-C ignored, and its children inherit that; tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
