"""What Snakemake plans for the figures of the papers, with a stand-in for `hios`: nothing is simulated or measured."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hios.machine.description import processor
from hios.study import registry
from tests.workflow.conftest import Checkout, drawn_from, jobs

TARGETS = ("hios_fig7", "hios_fig9", "ios_tab1", "ios_fig6", "ios_fig8")
#: Settings of figures 7 and 9 with one of their own values each, beside the one that they share.
SMALL: dict[str, Any] = {"study": {"simulation": {"instances": 2, "devices": [2, 4], "edges": [400, 450]}}}


def _simulations(planned: dict[str, int]) -> int:
    """Number of jobs that simulate: each has the graphs of some settings, and a rule of its own."""
    return sum(jobs for rule, jobs in planned.items() if rule.startswith("simulation_"))


@pytest.fixture(scope="module")
def drawn(new_checkout: Callable[[Path], Checkout], tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which some figures are drawn; tests leave it as they found it."""
    checkout = new_checkout(tmp_path_factory.mktemp("drawn") / "checkout")
    checkout.succeed("--configfile", checkout.config("config.yaml", **SMALL), "--", *TARGETS)
    return checkout


@pytest.mark.slow
def test_a_figure_runs_its_sessions_and_nothing_else(unrun: Checkout) -> None:
    """A figure of the simulation needs no network; series share the setting that they have in common."""
    config = unrun.config(**SMALL)
    edges = {"simulation_n200_e400_l14": 1, "simulation_n200_e450_l14": 1}
    assert unrun.planned("--configfile", config, "--", "hios_fig9") == {**edges, "figure": 1, "hios_fig9": 1}
    both = unrun.planned("--configfile", config, "--", "hios_fig7", "hios_fig9")
    assert both == {**edges, "figure": 2, "hios_fig7": 1, "hios_fig9": 1}
    assert unrun.planned("--configfile", config, "--", "ios_tab1") == {"figure": 1, "ios_tab1": 1}


def test_all_figures(unrun: Checkout) -> None:
    """The target figures draws every figure of the registry, from one session each, and then writes their page.

    A job simulates a set of graphs.
    """
    printed = unrun.succeed("-n", "-p", "--", "figures")
    assert printed.rindex("hios figures --page --results results") > printed.rindex("hios report")
    planned = jobs(printed)
    assert (planned["figure"], planned["report"], planned["figures"]) == (len(registry.ids()), 1, 1)
    assert (_simulations(planned), planned["ablation"], planned["execute"]) == (15, 2, 2 + 2 + 2)
    assert planned["profile_alone"] == 3


def test_nothing_is_executed_where_nothing_can(unrun: Checkout) -> None:
    """With platform model, figures of measured networks are drawn without any: as published."""
    config = unrun.config(platform="model", gpu="a40")
    assert unrun.planned("--configfile", config, "--", "ios_fig6") == {"figure": 1, "ios_fig6": 1}


@pytest.mark.parametrize(
    ("file", "figures"),
    [
        ("study/figures/hios.py", {"hios_fig7", "hios_fig9"}),
        pytest.param("study/figures/ios.py", {"ios_tab1", "ios_fig6", "ios_fig8"}, marks=pytest.mark.slow),
        ("study/figures.yaml", set(TARGETS)),
        pytest.param("study/simulated_rows.py", {"hios_fig7", "hios_fig9"}, marks=pytest.mark.slow),
        ("study/published.yaml", set(TARGETS)),
        pytest.param("charts/marks.py", set(TARGETS), marks=pytest.mark.slow),
        ("cli/results.py", set()),
    ],
)
def test_redrawing_measures_nothing(drawn: Checkout, file: str, figures: set[str]) -> None:
    """An edit of what draws the figures of a paper draws these again, and no session runs."""
    with drawn.edited(f"hios/{file}", "\n# edited\n" if file.endswith(".yaml") else "\nEDITED = True\n"):
        planned = drawn.planned("--", *TARGETS)
    assert planned == ({"figure": len(figures), **dict.fromkeys(figures, 1)} if figures else {})


def _variable(page: str, name: str) -> Any:
    """What Snakemake's report assigns to a variable in the script of its name."""
    text = page.split(f'<script id="{name}">', 1)[1].split(f"var {name} = ", 1)[1]
    return json.JSONDecoder().raw_decode(text)[0]


@pytest.mark.slow
def test_snakemake_report_of_figures(drawn: Checkout, tmp_path: Path) -> None:
    """`snakemake --report r.zip`: papers are categories, sections subcategories; labels and captions say the rest."""
    drawn.succeed("--report", tmp_path / "r.zip", "--configfile", "config.yaml", "--", *TARGETS)
    with zipfile.ZipFile(tmp_path / "r.zip") as report:
        (name,) = [name for name in report.namelist() if name.endswith("report.html")]
        page = report.read(name).decode()
        drawings = {Path(entry).name: report.read(entry).decode() for entry in report.namelist()}
    categories, results = _variable(page, "categories"), _variable(page, "results")
    for target in TARGETS:
        figure, path = registry.figure(target), f"results/figures/{target}.svg"
        assert path in categories[figure.paper][figure.section]
        result = results[path]
        labels = result["labels"]
        assert (labels["figure"], labels["what"], labels["scale"]) == (figure.number, figure.title, "quick")
        assert labels["hardware"] == ("any" if labels["measured"] == "no" else processor())
        assert (labels["measured"] == "yes") == (target == "ios_fig6")
        assert figure.title in result["caption"]
        assert figure.varies in result["caption"]
        assert f"figures {target} " in drawings[f"{target}.svg"], "what the stand-in drew"


@pytest.mark.parametrize("file", ["study/released_program.py", "schedulers/hios_lp.py"])
def test_edited_simulation(drawn: Checkout, file: str) -> None:
    """An edit of the simulation code repeats the simulation, and draws what depends on it."""
    with drawn.edited(f"hios/{file}"):
        planned = drawn.planned("--", "hios_fig9", "ios_tab1")
    assert _simulations(planned) == 2
    assert planned["hios_fig9"] == 1


def test_changed_setting(drawn: Checkout) -> None:
    """A new value of a series simulates its graphs alone."""
    study = {"simulation": {"instances": 2, "devices": [2, 4], "edges": [400, 450, 500]}}
    planned = drawn.planned("--configfile", drawn.config(study=study), "--", *TARGETS)
    assert planned == {"simulation_n200_e500_l14": 1, "figure": 1, "hios_fig9": 1}


@pytest.mark.slow
def test_the_page_shows_what_its_sessions_feed(unrun: Checkout) -> None:
    """`study: sessions:` decides which figures a plain `snakemake` draws; the report gets their folder."""
    simulation = {"instances": 2, "devices": [2, 4], "operators": [200], "edges": [400], "layers": [14], "p": [0.8]}
    config = unrun.config(study={"sessions": ["simulation", "networks"], "simulation": simulation})
    printed = unrun.succeed("-n", "-p", "--configfile", config)
    planned = jobs(printed)
    assert (_simulations(planned), planned["execute"], planned["report"]) == (1, 2, 1)
    assert planned["figure"] == drawn_from("simulation", "networks") > drawn_from() + 5
    assert "--figures results/figures" in printed
    printed = unrun.succeed("-n", "-p", "--configfile", unrun.config(study={"sessions": []}))
    planned = jobs(printed)
    assert not {"figure", "ablation"} & planned.keys()
    assert not _simulations(planned)
    assert "--figures" not in printed


def test_pages_of_predictions_have_simulated_figures_alone(unrun: Checkout) -> None:
    """Where nothing runs, figures of measured networks are not part of the page."""
    study = {"sessions": ["ablation", "networks", "convolutions"]}
    planned = unrun.planned("--configfile", unrun.config(platform="model", gpu="a40", study=study))
    assert planned["figure"] == drawn_from() + 1
    assert "convolutions" not in planned


def test_archives_of_other_machines(checkout: Checkout) -> None:
    """Figures are drawn from copies in the results, equal byte for byte; an archive that is not there is named."""
    (checkout.path / "a100.zip").write_bytes(b"an archive")
    config = checkout.config(platform="model", gpu="a40", study={"archives": ["a100.zip"]})
    drawn = {"machine_archive": 1, "figure": 1, "ios_fig14": 1}
    assert checkout.planned("--configfile", config, "--", "ios_fig14") == drawn
    copy = "results/study/archives/a100.zip"
    checkout.succeed("--cores", "1", "--configfile", config, "--", copy)
    assert (checkout.path / copy).read_bytes() == b"an archive"
    missing = checkout.config(study={"archives": ["b.zip"]})
    refused = checkout.refusal("--configfile", missing)
    assert "study.archives[0]: found b.zip, which is no file; allowed: archives" in refused


@pytest.mark.slow
def test_networks_of_sessions(checkout: Checkout) -> None:
    """Other sizes are separate networks: each has the algorithms of its figures, in a session of its own."""
    study = {
        "batches": {"sizes": {"squeezenet": [1, 4, 16]}, "image_size": 64},
        "images": {"sizes": {"squeezenet": [64], "inception_v3": [96]}},
        "transformers": {"models": ["bert"]},
    }
    config = checkout.config(study=study)
    planned = checkout.planned("--configfile", config, "--", "ios_tab3", "ios_fig11")
    measured = dict.fromkeys(("export", "extract", "profile", "execute"), 3)
    drawn = {"figure": 2, "ios_tab3": 1, "ios_fig11": 1}
    assert planned == {**measured, "schedule": 3 * 3, "retarget": 3 * 2, **drawn}
    checkout.succeed("--configfile", config, "--", "ios_tab3")
    executed = [" ".join(words) for words in checkout.called("execute")]
    folder = "results/study/batches/squeezenet-b4"
    own, others = f"{folder}/schedules/ios-1.json", f"{folder}/retargeted/ios-for-b16.json"
    assert sum(own in words and others in words for words in executed) == 1
    exported = [" ".join(words) for words in checkout.called("export")]
    assert sum("--image-size 64 --batch-size 16" in words for words in exported) == 1
    assert checkout.planned("--configfile", config, "--", "opara_fig7")["schedule"] == 3
    assert checkout.planned("--configfile", config, "--", "hios_fig12")["execute"] == 2
    more = checkout.config(study={**study, "sessions": ["images", "networks"]})
    assert checkout.planned("--configfile", more, "--", "hios_fig12")["execute"] == 4


@pytest.mark.slow
def test_networks_profiled_for_one_algorithm(unrun: Checkout) -> None:
    """Each for every algorithm of the figure, anew and without a budget, on one device where that is all it uses.

    With scale quick, everything is measured once.
    """
    sizes = {"images": {"sizes": {"squeezenet": [64, 96]}}}
    config = unrun.config(study={**sizes, "scale": "quick"}, profile={"repeats": 7})
    shown = unrun.succeed("-n", "-p", "--configfile", config, "--", "hios_fig14")
    drawn = {"figure": 1, "hios_fig14": 1}
    assert jobs(shown) == {"export": 2, "extract": 2, "profile_alone": 2 * 3, **drawn}
    for algorithm, devices in (("ios", 1), ("hios-mr", 2), ("hios-lp", 2)):
        folder = f"results/study/profiles/squeezenet-96/{algorithm}"
        (profile,) = [line for line in shown.splitlines() if f"hios profile {folder}/graph.json" in line]
        assert f"--devices {devices} " in profile
        assert f"--stages-of {algorithm} " in profile
        assert "--budget 1000000.0 " in profile
        assert "--repeats 1 " in profile
        assert "--no-cache" in profile
        assert "--widths" not in profile
    full = unrun.config(study={**sizes, "scale": "full"}, profile={"repeats": 7})
    shown = unrun.succeed("-n", "-p", "--configfile", full, "--", "hios_fig14")
    assert all("--repeats 7 " in line for line in shown.splitlines() if "hios profile " in line)
    quick = unrun.planned("--configfile", unrun.config(study={"scale": "quick"}), "--", "hios_fig14")
    assert quick == {"export": 1, "extract": 1, "profile_alone": 3, **drawn}
    predicted = unrun.config(platform="model", gpu="a40")
    assert unrun.planned("--configfile", predicted, "--", "hios_fig14") == drawn


def test_archive(unrun: Checkout) -> None:
    """`snakemake archive` packs what a plain `snakemake` makes, page and all."""
    planned = unrun.planned("--", "archive")
    assert (planned["archive"], planned["report"], planned["execute"], planned["provenance"]) == (1, 1, 2, 1)
