"""Converting a program for another runtime in a separate process, stopped when the budget ends.

``python -m hios.optimizing.runtime_conversion KIND PROGRAM FILE THREADS`` is what runs there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from hios.workers.pool import import_folders

#: Maximum number of characters of an error line that is passed on.
_LONGEST = 300


class Conversion:
    """A running conversion; the arguments are those of `hios.optimizing.runtimes.convert`, the program a file."""

    def __init__(self, kind: str, program: Path, path: Path, threads: int) -> None:
        self._began = time.monotonic()
        #: Seconds that it took, or after which it was stopped.
        self.took_s = 0.0
        self._path, self._partial = path, path.with_name(f"partial-{path.name}")
        command = [sys.executable, "-P", "-m", "hios.optimizing.runtime_conversion"]
        self._errors: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115 - `end` closes it
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [*command, kind, str(program), str(self._partial), str(threads)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(import_folders())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # so that compilers it starts end with it
        )

    @property
    def runs(self) -> bool:
        """Whether it is still running."""
        return self._process.poll() is None

    def finish(self, deadline: float) -> str:
        """Wait for the result, until the deadline by ``time.monotonic``; why there is none, or an empty text."""
        try:
            code = self._process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.end()
            self.took_s = time.monotonic() - self._began
            return f"not prepared within {self.took_s:.0f} s, which the budget (budget_s) had for it"
        if code == 0:
            # Not the current time, as the result may be older than this call. All processes share this clock.
            self.took_s = float(self._lines()[-1]) - self._began
            self._partial.replace(self._path)
            return ""
        self.took_s = time.monotonic() - self._began
        return self._reason(code)

    def _reason(self, code: int) -> str:
        lines = self._lines()
        return lines[-1][:_LONGEST] if lines else f"its conversion ended with exit status {code}"

    def _lines(self) -> list[str]:
        """The lines it printed."""
        self._errors.seek(0)
        return [line.strip() for line in self._errors.read().splitlines() if line.strip()]

    def end(self) -> None:
        """Stop it and its child processes."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        self._errors.close()
        self._partial.unlink(missing_ok=True)


def main(arguments: list[str]) -> None:
    """Convert; the last line on standard error is an error, or the time of completion (``time.monotonic``)."""
    kind, program, path, threads = arguments
    import torch

    from hios.errors import HiosError
    from hios.frontends import program as programs
    from hios.optimizing.runtimes import convert
    from hios.workers.process_settings import end_with_parent

    end_with_parent(os.getppid())
    torch.set_num_threads(int(threads))
    try:
        convert(kind, programs.load(program), Path(path), int(threads))
    except HiosError as error:
        sys.exit(str(error))
    sys.stderr.write(f"\n{time.monotonic()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
