"""Fuzz the readers by coverage, with atheris (libFuzzer): ``python -m tests.verify.guided_fuzz FILES [READER ...]``.

Files that reach new lines of hios are kept and changed further, in their values, as text and as bytes. A reader fails
by whatever comes out of it but a `HiosError` of one short line, by 60 s without an answer, and by 4 GB of memory; the
file and what libFuzzer said are then in the folder ``.fuzz``. ``make fuzz`` installs atheris, where it can, and runs
this.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

#: Where the file by which a reader failed lies, and what libFuzzer printed.
FOLDER = Path(".fuzz")
_OPTIONS = ("-timeout=60", "-rss_limit_mb=4096", "-max_len=200000", "-verbosity=0")
#: Share of changes by libFuzzer, which knows what reached new lines and nothing of JSON.
_AS_BYTES = 0.3


def main(files: int, names: list[str]) -> int:
    """Fuzz readers one after another, each in a process of its own, as libFuzzer ends it.

    Args:
        files: how many, over all readers.
        names: of readers; all if empty.

    Returns:
        1 if a reader failed, else 0.
    """
    from tests.verify.fuzzed_readers import NAMES

    names = names or list(NAMES)
    FOLDER.mkdir(exist_ok=True)
    each = max(files // len(names), 1)
    failed = False
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            process = get_context("spawn").Process(target=fuzz, args=(name, each, Path(folder)))
            process.start()
            process.join()
        print(f"{name}: {each} files, {'FAILED' if process.exitcode else 'passed'}", flush=True)  # noqa: T201
        if process.exitcode:
            failed = True
            print(_log(name).read_text(errors="replace")[-4000:])  # noqa: T201
    return int(failed)


def fuzz(name: str, files: int, folder: Path) -> None:
    """Try files on a reader; does not return.

    Args:
        name: of the reader.
        files: how many.
        folder: an empty one.
    """
    with _log(name).open("wb") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    atheris = import_module("atheris")
    with atheris.instrument_imports(include=["hios"]):
        from tests.verify.fuzzed_readers import changed, readers

        reader = readers(folder)[name]
        path = folder / f"file.{'yaml' if reader.yaml else 'json'}"

        def check(data: bytes) -> None:
            reader.check(path, data)

        def change(data: bytes, most: int, seed: int) -> bytes:
            chance = random.Random(seed)
            if chance.random() < _AS_BYTES:
                return bytes(atheris.Mutate(data, most))
            try:
                return changed(json.loads(data), chance, as_yaml=reader.yaml)[:most]
            except (ValueError, RecursionError):  # no JSON, or too deep to be changed within
                return changed(reader.document, chance, as_yaml=reader.yaml)[:most]

        corpus = folder / "corpus"
        corpus.mkdir()
        (corpus / "valid").write_text(json.dumps(reader.document), encoding="utf-8")
        words = [name, f"-runs={files}", f"-artifact_prefix={FOLDER}/", *_OPTIONS, str(corpus)]
        atheris.Setup(words, check, custom_mutator=change)
        atheris.Fuzz()


def _log(name: str) -> Path:
    return FOLDER / f"{name}.log"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
