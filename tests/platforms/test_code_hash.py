"""Hashes of the code behind the stages: which edit changes which."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import hios
from hios import HiosError
from hios.platforms import code_hash as sources
from hios.platforms.code_hash import STAGES, Code, CodeCache, code_hash, package_hash, source_hash
from hios.platforms.cpu import environment
from hios.platforms.cuda import environment as cuda_environment

PACKAGE = Path(hios.__file__).resolve().parent
#: Algorithms that a stage runs in these tests.
RUNS = {"profile": ["greedy", "hios-lp"], "schedule": ["heft"]}
#: Stages that serve requests, that search for schedules, and that run operators.
SERVING = {"calibrate", "load", "serve", "top", "train"}
SOLVING = {"convolutions", "partition", "predict_targets", "profile", "schedule", "simulation"}
ENGINE = {"calibrate", "convolutions", "distribute", "execute", "load", "partition", "profile"}


#: What `hios.platforms.code_hash` keeps of every module.
_CACHED = (sources._imported, sources._digest)


def _hashes(package: Path) -> dict[str, str]:
    return {stage: source_hash(stage, RUNS.get(stage, ()), package) for stage in STAGES}


@pytest.fixture(scope="module")
def original() -> dict[str, str]:
    """Hashes of this hios."""
    return _hashes(PACKAGE)


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A copy of hios, to be edited."""
    path = tmp_path / "hios"
    shutil.copytree(PACKAGE, path, ignore=shutil.ignore_patterns("__pycache__"))
    yield path
    for function in _CACHED:
        function.cache_clear()


def test_copies_have_the_same_hashes(package: Path, original: dict[str, str]) -> None:
    """The place of hios does not count, and all stages differ."""
    assert _hashes(package) == original
    assert len(set(_hashes(package).values())) == len(STAGES)


def test_what_is_compiled_does_not_count(package: Path) -> None:
    """Caches that Python and numba leave beside the sources change no hash."""
    before = _hashes(package)
    cache = package / "schedulers" / "opt" / "__pycache__"
    cache.mkdir(parents=True)
    (cache / "kernel.anneal-1.py311.nbi").write_bytes(b"compiled")
    shutil.copytree(package, package.parent / "again" / "hios")
    assert _hashes(package.parent / "again" / "hios") == before


@pytest.mark.parametrize(
    ("file", "stages"),
    [
        ("files/artifacts.py", set(STAGES)),
        ("core/problem.py", SERVING | SOLVING | {"distribute", "execute", "report"}),
        ("core/check.py", {"simulation"}),
        ("cli/__init__.py", set()),
        ("cli/stages.py", set()),
        ("__init__.py", set()),
        ("schedulers/registry.py", SERVING | SOLVING),
        ("schedulers/heft.py", {"schedule"}),
        ("schedulers/hios_lp.py", {"profile", "simulation"}),
        ("schedulers/hios_mr.py", {"simulation"}),
        ("frontends/export.py", {"export"}),
        ("frontends/pt2_archive.py", {"distribute", "execute", "export", "extract", "load", "partition"}),
        ("frontends/onnx_file.py", {"distribute", "execute", "export", "extract", "load", "partition"}),
        ("frontends/onnx_lowering.py", {"extract", "partition"}),
        ("frontends/torch_lowering.py", {"extract", "partition"}),
        ("kernels/table/images.py", ENGINE | {"extract", "top"}),
        ("workers/worker.py", ENGINE),
        ("platforms/cpu/timing.py", {"convolutions", "partition", "profile"}),
        ("platforms/cpu/executing.py", {"execute"}),
        ("platforms/cuda/backend.py", {"execute"}),
        ("platforms/cuda/timing.py", {"convolutions", "partition", "profile"}),
        ("platforms/cpu/devices.py", ENGINE | {"predict", "predict_targets"}),
        ("platforms/cpu/reporting.py", {"report"}),
        ("platforms/protocol.py", {"distribute"}),
        ("platforms/cpu/distributing.py", {"distribute"}),
        ("runtime/distributed/transports.py", {"distribute"}),
        ("runtime/session.py", {"execute"}),
        ("report/charts.py", {"report"}),
        ("serving/simulator.py", SERVING),
        ("serving/dispatcher.py", {"calibrate", "load"}),
        ("charts/rendering.py", {"report"}),
        ("study/released_program.py", {"simulation"}),
        ("study/registry.py", {"report"}),
        ("study/figures/hios.py", set()),
        ("formats/settings.py", SERVING | {"distribute", "execute", "export", "partition", "report"}),
        ("formats/config.py", SERVING | {"export", "report"}),
    ],
)
def test_edits_of_code(package: Path, original: dict[str, str], file: str, stages: set[str]) -> None:
    """A new statement changes the stages that import the file, and no other."""
    with (package / file).open("a") as stream:
        stream.write("\nEDITED = True\n")
    after = _hashes(package)
    assert {stage for stage in STAGES if original[stage] != after[stage]} == stages


def test_templates_count(package: Path, original: dict[str, str]) -> None:
    """The templates of the page are code of the report, an added one too."""
    (package / "report" / "templates" / "more.css").touch()
    after = _hashes(package)
    assert {stage for stage in STAGES if original[stage] != after[stage]} == {"report"}


@pytest.mark.parametrize("description", ["gpus/a40", "links/pcie4"])
def test_descriptions_count_for_predictions_only(package: Path, description: str) -> None:
    """An edit of a GPU or a link changes what predicts, and nothing of a pipeline that measures."""

    def measuring_hashes(folder: Path) -> dict[str, str]:
        environments = {"cpu": environment._CODE, "cuda": cuda_environment._CODE}
        hashes = {name: code_hash(modules, folder) for name, modules in environments.items()}
        hashes["optimize"] = package_hash(folder)
        return hashes | {
            f"{stage} on {platform}": source_hash(stage, (), folder, platform)
            for stage in ("profile", "execute", "report")
            for platform in ("cpu", "cuda")
        }

    with (package / "platforms" / "model" / f"{description}.yaml").open("a") as stream:
        stream.write("# edited\n")
    assert measuring_hashes(package) == measuring_hashes(PACKAGE)
    assert source_hash("predict", (), package, "model") != source_hash("predict", (), PACKAGE, "model")


@pytest.mark.parametrize(
    ("file", "module"), [("published.yaml", "hios.study.published"), ("figures.yaml", "hios.study.figures.hios")]
)
def test_data_of_a_module(package: Path, original: dict[str, str], file: str, module: str) -> None:
    """A data file with the name of a module or package counts for that one, not for the package that it lies in."""
    with (package / "study" / file).open("a") as stream:
        stream.write("# edited\n")
    after = _hashes(package)
    assert {stage for stage in STAGES if original[stage] != after[stage]} == {"report"}
    assert code_hash([module], package) != code_hash([module], PACKAGE)
    assert code_hash(["hios.study.registry"], package) != code_hash(["hios.study.registry"], PACKAGE)


def test_words_do_not_count(package: Path, original: dict[str, str]) -> None:
    """Comments, docstrings, texts under fields and layout are no reason to measure again."""
    for file in package.rglob("*.py"):
        text = file.read_text()
        assert text.startswith('"""') or not text
        edited = re.sub(r'^( *""")(?=\w)', r"\1Edited. ", text, flags=re.MULTILINE)
        file.write_text(edited.replace("\n\n", "\n\n# edited\n\n"))
    assert '    """Edited. Timed runs of each competitor."""' in (package / "formats" / "settings.py").read_text()
    assert _hashes(package) == original


def test_new_algorithms_do_not_count(package: Path, original: dict[str, str]) -> None:
    """An algorithm that joins the registry changes no stage that does not run it."""
    file = package / "schedulers" / "__init__.py"
    text = file.read_text()
    file.write_text(text.replace("\n    gpg,\n", "\n    added,\n    gpg,\n"))
    assert file.read_text().count("added") == 1
    (package / "schedulers" / "added.py").write_text("ADDED = True\n")
    assert _hashes(package) == original


def test_new_platforms_do_not_count(package: Path) -> None:
    """A platform that joins the table changes nothing of a pipeline on another one."""
    file = package / "platforms" / "__init__.py"
    text = file.read_text()
    entry = '\n    "cpu": KnownPlatform('
    modules = {"platform": "devices", "measuring": "devices", "executing": "running", "reporting": "words"}
    file.write_text(text.replace(entry, f'\n    "added": KnownPlatform("devices of a test", {modules}),{entry}'))
    assert '"added"' in file.read_text()
    (package / "platforms" / "added").mkdir()
    for module in ("__init__", *modules.values()):
        (package / "platforms" / "added" / f"{module}.py").write_text("ADDED = True\n")
    for stage in ("profile", "execute"):
        assert source_hash(stage, (), package, "cpu") == source_hash(stage, (), PACKAGE, "cpu")
        assert source_hash(stage, (), package) != source_hash(stage, (), PACKAGE)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_other_platforms_do_not_count(package: Path, platform: str) -> None:
    """Only what measures on the platform that a pipeline uses counts for it."""
    for part in ("measuring", "devices", "timing"):
        with (package / "platforms" / platform / f"{part}.py").open("a") as stream:
            stream.write("\nEDITED = True\n")
    changed = set()
    for name in ("cpu", "cuda"):
        if source_hash("profile", (), package, name) != source_hash("profile", (), PACKAGE, name):
            changed.add(name)
    assert changed == {platform}


def test_what_an_own_algorithm_imports_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules in the working folder, in functions and packages too; not those of installed packages below it."""
    monkeypatch.chdir(tmp_path)
    texts = {
        "my_rule.py": "import order_helper\ndef f():\n    import __main__, pytest\n    from nets.parts import more",
        "order_helper.py": "import bought",
        "nets/parts.py": "import nets.deep.more",
        "nets/deep/more.py": "",
        "venv/site-packages/bought.py": "",
    }
    monkeypatch.syspath_prepend(tmp_path / "venv" / "site-packages")
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    def hashed() -> str:
        for function in (*_CACHED, sources._outside_file):
            function.cache_clear()
        return code_hash(["my_rule"])

    before = hashed()
    for name, counts in (
        ("order_helper.py", True),
        ("nets/deep/more.py", True),
        ("venv/site-packages/bought.py", False),
    ):
        (tmp_path / name).write_text(f"{texts[name]}\nx = 1", encoding="utf-8")
        assert (hashed() != before) == counts, name
        (tmp_path / name).write_text(texts[name], encoding="utf-8")
    assert hashed() == before


def test_unknown_algorithms_are_refused() -> None:
    """An algorithm that is not registered has no code."""
    with pytest.raises(HiosError, match="unknown algorithm magic; allowed: "):
        source_hash("schedule", ["magic"])


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
