"""The errors that hios raises on purpose; the command line prints their message and nothing else."""


def first_line(error: BaseException) -> str:
    """The first line of another library's error message; the name of its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class HiosError(Exception):
    """Something the user can mend: the message says where, what was found and what is allowed."""


class ArtifactError(HiosError):
    """A file is missing, damaged, of another version, or breaks its schema."""


class ScheduleError(HiosError):
    """A schedule cannot run: it deadlocks, or does not fit the graph or the devices."""


class PlatformError(HiosError):
    """The devices asked for are not there, or a worker died, hung or gave wrong results."""


class UnsupportedError(HiosError):
    """A model uses something that a frontend or the kernel table does not know."""
