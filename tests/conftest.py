"""Settings of all tests."""

from hypothesis import settings

# Nothing is timed in tests: imports, compilation and busy neighbours would fail them at random.
settings.register_profile("hios", deadline=None)
settings.load_profile("hios")
