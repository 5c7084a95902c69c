"""docs/reproducing.md is what registry and published numbers make of it, and other documents state the same numbers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import hios
from hios.study import registry
from hios.study.published import Published, number, published

ROOT = Path(hios.__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """docs/generate_figures.py, which is a script and not in a package."""
    spec = importlib.util.spec_from_file_location("generate_figures", ROOT / "docs" / "generate_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_generated(generate: ModuleType) -> None:
    """The page has every figure and every published number as they are now."""
    text = generate.PAGE.read_text(encoding="utf-8")
    assert text == generate.generated(text), "out of date: run python docs/generate_figures.py"
    assert all(f"`snakemake {name}`" in text for name in registry.ids())


def test_parts_are_looked_for(generate: ModuleType) -> None:
    """A page without a part is refused, and one whose part is damaged is repaired."""
    text = generate.PAGE.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="generated part marks: found 0; allowed: 1"):
        generate.generated(text.replace("<!-- generated: marks -->", ""))
    assert generate.generated(text.replace("`snakemake hios_fig9`", "`snakemake hios_fig0`")) == text


def _cell(row: str, place: int) -> str:
    return row.split("|")[place].strip()


def _statement(entry: Published) -> str:
    """A statement as docs/algorithms.md has it: a range, a fall, or one number."""
    if entry.cases:
        first, *_, last = (f"{value:.2f}" for value in entry.cases.values())
        return f"{first} down to {last}" if float(first) > float(last) else f"{float(first):g} to {float(last):g}"
    if entry.value is not None:
        return f"{entry.value:g}"
    return entry.text


#: Rows of the table of HIOS's simulation, by what they say, and the statement that they repeat.
ROWS = {
    "2 to 12 GPUs": {
        "HIOS-LP over sequential": "hios_fig7.lp_over_sequential",
        "HIOS-LP over IOS": "hios_fig7.lp_over_ios",
        "HIOS-MR over sequential": "hios_fig7.mr_over_sequential",
    },
    "400 to 600 edges": {
        "HIOS-LP over sequential": "hios_fig9.lp_over_sequential",
        "HIOS-LP over IOS": "hios_fig9.lp_over_ios",
    },
    "6 to 22 layers": {
        "sequential, ms": "hios_fig10.sequential",
        "IOS, ms": "hios_fig10.ios",
        "HIOS-LP, ms": "hios_fig10.lp",
        "HIOS-MR, ms": "hios_fig10.mr",
    },
    "transfers 0.4 to 1.2 of the time": {
        "HIOS-LP over sequential": "hios_fig11.lp_over_sequential",
        "HIOS-LP over IOS": "hios_fig11.lp_over_ios",
    },
    "100 to 400 operators": {
        "HIOS-LP over sequential": "hios_fig8.lp_over_sequential",
        "HIOS-LP over IOS": "hios_fig8.lp_over_ios",
        "HIOS-LP over HIOS-MR": "hios_fig8.lp_over_mr",
        "HIOS-LP over its inter-GPU part": "hios_fig8.lp_over_inter",
    },
}


def test_simulation_in_the_documents() -> None:
    """The column "paper" of docs/algorithms.md repeats the published numbers."""
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    table = text.split("| what varies | | paper | hios |\n")[1].split("\n\n")[0].splitlines()[1:]
    cells: dict[str, dict[str, str]] = {}
    varied = ""
    for row in table:
        varied = _cell(row, 1) or varied
        cells.setdefault(varied, {})[_cell(row, 2)] = _cell(row, 3)
    cuts = cells["100 to 400 operators"].pop("what groups cut of LP and MR")
    expected = {
        varied: {
            what: _statement(published(key.partition(".")[0])[key.partition(".")[2]]) for what, key in rows.items()
        }
        for varied, rows in ROWS.items()
    }
    assert cells == expected
    lp, mr = (published("hios_fig8")[f"groups_cut_{name}"] for name in ("lp", "mr"))
    assert cuts == f"{lp.text} %, {mr.text} %"


def test_ablation_in_the_documents() -> None:
    """The last row of the ablation repeats figure 9 at 400 edges."""
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    lp, mr = (f"{number(f'hios_fig9.{name}_over_sequential', '400'):.2f}" for name in ("lp", "mr"))
    assert f"| published (figure 9, 400 edges) | {lp} | {mr} | {lp} | {mr} |\n" in text


NAMES = {"inception_v3": "Inception-v3", "nasnet_large": "NASNet", "squeezenet": "SqueezeNet", "randwire": "RandWire"}


def _numbers(keys: tuple[str, ...], networks: tuple[str, ...], format_spec: str) -> list[str]:
    return [
        f"{NAMES[network]} " + " / ".join(format(number(key, network), format_spec) for key in keys)
        for network in networks
    ]


def test_measured_latencies_in_the_documents() -> None:
    """The table of measured latencies in docs/algorithms.md repeats the published numbers."""
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    networks = ("inception_v3", "nasnet_large", "squeezenet", "randwire")
    of_ios = ("ios_fig6.sequential", "ios_fig6.greedy", "ios_fig6.both", "ios_fig7.tensorrt")
    of_lios = ("lios_tab7.lios", "lios_tab7.tensorrt")
    for statement in (
        *_numbers(of_ios, networks, "g"),
        *_numbers(of_lios, networks, "g"),
        *_numbers(("lios_tab5.ios", "lios_tab5.lios"), networks, "g"),
    ):
        assert statement in text
    low, high = published("hios_fig12")["inception_below_sequential"], published("hios_fig12")["inception_below_ios"]
    assert f"Inception-v3 {low.text} % below sequential, {high.text} % below IOS" in text
    assert f"up to {number('opara_fig5.over_graph', 'most'):g} times as fast" in text
    rerun = published("ios_fig7")["tensorrt_rerun"].cases
    assert not [value for value in rerun.values() if f" / {value:g}" in text], "numbers of two runs are mixed"
