"""What was read of Python sources is kept between processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hios.code_cache import Code, CodeCache

CODE = Code(("a", "a.b"), "digest")


@pytest.fixture
def parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose code makes entries, beside a cache folder of its own."""
    monkeypatch.setenv("HIOS_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "parser.py"
    file.write_text("first")
    return file


def _refused() -> Code:
    raise AssertionError("made although it was kept")


def test_entries_come_back(parser: Path) -> None:
    """A text is parsed once, by whichever process; what else it depends on counts."""
    cache = CodeCache([parser])
    assert cache.get(b"text", "module", lambda: CODE) == CODE
    assert cache.get(b"text", "module", _refused) == CODE
    cache.save()
    again = CodeCache([parser])
    assert again.get(b"text", "module", _refused) == CODE
    for text, depends in ((b"other", "module"), (b"text", "other")):
        with pytest.raises(AssertionError, match="made"):
            again.get(text, depends, _refused)


def test_edited_parsers_begin_anew(parser: Path) -> None:
    """What another version of the parser made does not count."""
    cache = CodeCache([parser])
    cache.get(b"text", "module", lambda: CODE)
    cache.save()
    parser.write_text("second")
    with pytest.raises(AssertionError, match="made"):
        CodeCache([parser]).get(b"text", "module", _refused)


@pytest.mark.parametrize("damaged", ["", "[]", '{"a": 1}', '{"a": [1, 2]}', "\0", "[" * 100_000])
def test_damaged_files_count_as_empty(parser: Path, damaged: str) -> None:
    """And are replaced."""
    cache = CodeCache([parser])
    cache.file.parent.mkdir(parents=True)
    cache.file.write_text(damaged)
    cache = CodeCache([parser])
    cache.get(b"text", "module", lambda: CODE)
    cache.save()
    assert list(json.loads(cache.file.read_text()).values()) == [[["a", "a.b"], "digest"]]


def test_processes_share_the_file(parser: Path) -> None:
    """What another process added in the meantime stays."""
    first, second = CodeCache([parser]), CodeCache([parser])
    first.get(b"one", "", lambda: CODE)
    second.get(b"two", "", lambda: CODE)
    first.save()
    second.save()
    again = CodeCache([parser])
    assert again.get(b"one", "", _refused) == again.get(b"two", "", _refused) == CODE


def test_folders_that_cannot_be_written(parser: Path, tmp_path: Path) -> None:
    """Stop nobody: the code is parsed again."""
    (tmp_path / "cache").write_text("a file")
    cache = CodeCache([parser])
    assert cache.get(b"text", "module", lambda: CODE) == CODE
    cache.save()
    assert (tmp_path / "cache").read_text() == "a file"
