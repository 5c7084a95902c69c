"""The published numbers: read, refused, and compared with what is found here."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml

from hios.errors import HiosError
from hios.study import registry
from hios.study.published import (
    Comparison,
    Found,
    Published,
    Verdict,
    all_published,
    has_published_inputs,
    number,
    published,
    read_published,
    verdict,
)
from tests.scripts import ROOT

_ENTRY = "figures: {f: {hardware: h, source: {kind: paper, place: p}, tolerance: 0.1, numbers: {n: %s}}}"


def test_every_group_is_a_figure_or_text() -> None:
    """Published numbers belong to a figure of the registry, or are stated only in the text of a paper."""
    groups = {group for group in all_published() if not group.endswith("_text")}
    assert groups <= set(registry.ids())


def test_numbers() -> None:
    """Values, ends of ranges and cases are reached by their key."""
    assert number("hios_fig9.lp_over_sequential", "400") == 2.06
    assert number("hios_fig7.mr_over_sequential", "most") == 1.5
    assert number("hios_fig10.sequential") == 411
    assert published("ios_fig7")["tensorrt"].numbers["inception_v3"] == 5.21
    assert published("ios_fig6")["greedy"].source.kind == "readme"
    assert published("nothing") == {}


def test_inputs_are_those_of_the_networks() -> None:
    """What the papers give a network is what the function that builds it gives by default."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    stated = yaml.safe_load((ROOT / "hios" / "study" / "published.yaml").read_text())["inputs"]
    for name in stated:
        with torch.device("meta"):
            _, inputs = importlib.import_module(f"models.{name}").build()
        assert {tuple(tensor.shape) for tensor in inputs} == {(1, *stated[name])}, name
        assert all(has_published_inputs(name, tensor.shape) for tensor in inputs), name


def test_which_inputs_are_published() -> None:
    """Those of the paper, with the batch that the label names; other networks have none."""
    assert has_published_inputs("inception_v3", (1, 3, 299, 299))
    assert has_published_inputs("inception_v3-b16", (16, 3, 299, 299))
    assert not has_published_inputs("inception_v3", (1, 3, 149, 149))
    assert not has_published_inputs("inception_v3", (16, 3, 299, 299))
    assert not has_published_inputs("inception_v3-b16", (4, 3, 299, 299))
    assert not has_published_inputs("bert-2-layers", (1, 128))
    assert has_published_inputs("inception_v3-512", (1, 3, 512, 512), larger=True)
    assert has_published_inputs("inception_v3", (1, 3, 512, 512), larger=True)
    assert not has_published_inputs("inception_v3-512", (1, 3, 512, 512))
    assert not has_published_inputs("inception_v3-149", (1, 3, 149, 149), larger=True)
    assert not has_published_inputs("inception_v3-512", (4, 3, 512, 512), larger=True)
    assert not has_published_inputs("other-512", (1, 3, 512, 512), larger=True)


def test_words() -> None:
    """Ranges with one end say so."""
    texts = {name: entry.text for name, entry in published("hios_fig12").items()}
    assert texts["inception_below_ios"] == "3.3 to 16.5"
    assert texts["nasnet_below_ios"] == "up to 11.1"
    assert published("hios_fig7")["mr_over_sequential"].text == "at most 1.5"
    assert published("hios_fig9")["lp_over_ios"].text == "400: 1.86, 600: 1.48"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "{what: w, unit: ms}",
            "figures.f.numbers.n: found 0 of value, least or most, and cases; allowed: one of them",
        ),
        ("{what: w, unit: ms, value: 1, least: 1}", "found 2 of value"),
        ("{what: w, unit: ms, value: one}", 'figures.f.numbers.n.value: found "one"; allowed: number'),
        (
            "{what: w, unit: ms, value: 1, vendor: x}",
            "figures.f.numbers.n: unknown key vendor; allowed: by_construction, ",
        ),
    ],
)
def test_bad_entries_are_refused(tmp_path: Path, entry: str, message: str) -> None:
    """In one line with file and field."""
    path = tmp_path / "published.yaml"
    path.write_text(_ENTRY % entry)
    with pytest.raises(HiosError) as caught:
        read_published(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def _published(tmp_path: Path, entry: str) -> Published:
    path = tmp_path / "published.yaml"
    path.write_text(_ENTRY % f"{{what: w, unit: ratio, {entry}}}")
    return read_published(path)["f"]["n"]


@pytest.mark.parametrize(
    ("entry", "value", "expected"),
    [
        ("value: 2, neutral: 1", 2.2, Verdict.AGREES),
        ("value: 2, neutral: 1", 2.21, Verdict.DIRECTION),
        ("value: 2, neutral: 1", 0.9, Verdict.DIFFERS),
        ("value: 2", 3.0, Verdict.DIFFERS),
        ("least: 1.5, most: 2, neutral: 1", (1.4, 2.1), Verdict.AGREES),
        ("least: 1.5, most: 2, neutral: 1", (1.2, 2.1), Verdict.DIRECTION),
        ("least: 1.5, most: 2, neutral: 1", (0.9, 2.1), Verdict.DIFFERS),
        ("most: 1.5, neutral: 1", (1.01, 1.6), Verdict.AGREES),
        ("most: 1.5, neutral: 1", 3.75, Verdict.DIFFERS),
        ("most: 1.5, neutral: 1", (0.98, 1.4), Verdict.DIFFERS),
        ("most: 1.5", (0.98, 1.4), Verdict.AGREES),
        ("value: 1.5, largest: true, neutral: 1", (0.98, 1.4), Verdict.AGREES),
        ("value: 1.5, largest: true, neutral: 1", {"a": 1.2, "b": 1.1}, Verdict.DIRECTION),
        ("value: 1.5, largest: true, neutral: 1", (1.5, 1.7), Verdict.DIFFERS),
        ("value: 1.5, largest: true, neutral: 1", (0.8, 0.9), Verdict.DIFFERS),
        ("least: 10, neutral: 1", 5.0, Verdict.DIFFERS),
        ("least: 1.05, most: 1.08, neutral: 1", (1.028, 1.041), Verdict.DIRECTION),
        ("least: 1.05, most: 1.08, neutral: 1", (1.046, 1.087), Verdict.AGREES),
        ("least: 1.05, most: 1.08, neutral: 1", (0.98, 1.06), Verdict.DIFFERS),
        ("value: 0.99, neutral: 1", 1.01, Verdict.DIFFERS),
        ("value: 1.02, neutral: 1", 0.98, Verdict.DIFFERS),
        ("value: 1.1, neutral: 1", 1.12, Verdict.AGREES),
        ("value: 1.1, neutral: 1", 1.126, Verdict.DIRECTION),
        ("value: 1.11, neutral: 1", 1.137, Verdict.AGREES),
        ("value: 1.11, neutral: 1", 1.138, Verdict.DIRECTION),
        ("value: 1.12, neutral: 1", 1.149, Verdict.AGREES),
        ("value: 1.12, neutral: 1", 1.151, Verdict.DIRECTION),
        ("value: 20, neutral: 0", 21.9, Verdict.AGREES),
        ("value: 20, neutral: 0", -20.0, Verdict.DIFFERS),
        ("value: 0.5", 0.0, Verdict.DIFFERS),
        ("value: 2, by_construction: drawn so", 2.1, Verdict.CONSTRUCTED),
        ("value: 2, by_construction: drawn so", 2.3, Verdict.DIFFERS),
        ('cases: {"a": 2.0, "b": 1.6}, neutral: 1', {"a": 2.1, "b": 1.5}, Verdict.AGREES),
        ('cases: {"a": 2.0, "b": 1.6}, neutral: 1', {"a": 4.0, "b": 3.9}, Verdict.DIRECTION),
        ('cases: {"a": 2.0, "b": 1.6}, neutral: 1', {"a": 3.9, "b": 4.0}, Verdict.DIFFERS),
        ('cases: {"a": 2.0, "b": 1.6}, neutral: 1', {"a": 1.2, "b": 0.9}, Verdict.DIFFERS),
        ('cases: {"a": 2.0, "b": 1.6}, neutral: 1', {"a": 1.9}, Verdict.AGREES),
        ('cases: {"a": 2.0, "b": 1.6}, neutral: 1', {"c": 1.9}, Verdict.ELSEWHERE),
        ('cases: {"a": 1.1, "b": 0.99}, neutral: 1', {"a": 3.0, "b": 2.0}, Verdict.DIFFERS),
        ('cases: {"a": 1.4, "b": 0.9}, neutral: 1', {"a": 1.2, "b": 0.7}, Verdict.DIRECTION),
        ('cases: {"1": 6.0, "16": 18.0}', {"1": 60.0, "16": 180.0}, Verdict.DIRECTION),
        # Networks have no order, in which numbers could change as the published ones do.
        ("cases: {bert: 6.0, t5: 18.0}", {"bert": 60.0, "t5": 180.0}, Verdict.DIFFERS),
        ("cases: {bert: 1.2, t5: 1.8}, neutral: 1", {"bert": 3.0, "t5": 2.5}, Verdict.DIRECTION),
    ],
)
def test_verdicts(tmp_path: Path, entry: str, value: Found, expected: Verdict) -> None:
    """Within the tolerance, in the same direction, neither, or not found here."""
    assert verdict(_published(tmp_path, entry), value) is expected


def test_exact_statements(tmp_path: Path) -> None:
    """A tolerance of 0 allows nothing else, and no direction either."""
    path = tmp_path / "published.yaml"
    path.write_text((_ENTRY % "{what: w, unit: blocks, cases: {a: 11, b: 13}}").replace("0.1", "0"))
    entry = read_published(path)["f"]["n"]
    assert verdict(entry, {"a": 11.0, "b": 13.0}) is Verdict.AGREES
    assert verdict(entry, {"a": 11.0, "b": 25.0}) is Verdict.DIFFERS


def test_a_statement_without_anything_found(tmp_path: Path) -> None:
    """It is not on this machine, or not compared where hios has nothing to compare it with."""
    assert Comparison(_published(tmp_path, "value: 2")).verdict is Verdict.ELSEWHERE
    assert Comparison(_published(tmp_path, "value: 2"), comparable=False).verdict is Verdict.UNCOMPARED
    zero = Comparison(_published(tmp_path, "value: 2"), 0.0)
    assert (zero.verdict, zero.found_text) == (Verdict.DIFFERS, "0")


def test_absent_cases_are_named(tmp_path: Path) -> None:
    """An agreement on some of the cases says which it does not cover."""
    entry = _published(tmp_path, "cases: {a: 2.0, b: 1.6, c: 1.2}, neutral: 1")
    one = Comparison(entry, {"b": 1.6})
    assert (one.verdict, one.absent) == (Verdict.AGREES, ("a", "c"))
    assert Comparison(entry, {"a": 2.0, "b": 1.6, "c": 1.2}).absent == Comparison(entry).absent == ()
    assert Comparison(entry, {"a": 2.0, "b": 1.6}, lacking="it is another").absent == ("c (it is another)",)


def test_what_figures_compare_does_not_depend_on_data() -> None:
    """Without rows every figure names the statements that it has a comparison for; only these are ever compared."""
    for figure in registry.figures():
        assert {entry.published.key for entry in figure.compare([])} <= set(figure.published), figure.id
    compared = {entry.published.key for figure in registry.figures() for entry in figure.compare([])}
    assert {"hios_fig9.mr_over_ios", "ios_fig2.ios_ms", "ios_fig16.block", "lios_tab2.changed"} <= compared
    assert "ios_fig9.r1_s8_over_sequential" in compared
    for name in ("hios_fig1", "hios_fig4", "lios_tab5", "opara_fig3"):
        assert not compared & {entry.key for entry in published(name).values()}
