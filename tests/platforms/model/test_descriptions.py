"""Descriptions of GPUs and links, those that come with hios and those of users."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from msgspec import structs

import hios
from hios import Graph, Operator
from hios.core.costs import CostOverheads, CostsFile
from hios.errors import ArtifactError, HiosError, PlatformError
from hios.formats.config import Config
from hios.pipeline import config
from hios.platforms.model import descriptions
from hios.platforms.model.descriptions import gpu, gpu_names, link
from hios.platforms.model.roofline import DEFAULT_EFFICIENCY, GRAPH_LAUNCH_US

#: FP32 TFLOPS as the data sheets and white papers state them; of Jetsons half of what they state for FP16.
FP32 = {
    "a100-pcie-40gb": 19.5,
    "a40": 37.4,
    "a5500": 34.1,
    "h100-sxm": 66.9,
    "h200-sxm": 66.9,
    "jetson-nano": 0.236,
    "jetson-tx2": 0.665,
    "jetson-xavier-nx": 0.845,
    "k80": 4.37,
    "rtx2080-super": 11.15,
    "rtx2080-ti": 13.45,
    "rtx3080": 29.8,
    "v100-sxm2": 15.7,
    "v100s-pcie": 16.4,
}
_FOLDER = Path(descriptions.__file__).parent


def changed(tmp_path: Path, **changes: object) -> Path:
    """The description of the A40 with some fields changed; None takes one out."""
    data = yaml.safe_load((_FOLDER / "gpus" / "a40.yaml").read_text(encoding="utf-8")) | changes
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not None}), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", gpu_names())
def test_rate_is_that_of_the_data_sheet(name: str) -> None:
    """SMs, FP32 cores and clock make the rate that the vendor prints."""
    assert gpu(name).fp32_tflops == pytest.approx(FP32[name], rel=0.003)


@pytest.mark.parametrize("name", gpu_names())
def test_all_links_are_there(name: str) -> None:
    """Every word of a description leads to a link; the first is the default."""
    described = gpu(name)
    times = [link(word, described).time_ms(10**6) for word in described.links]
    assert link(None, described).time_ms(10**6) == times[0] == min(times)


def test_devices_of_top() -> None:
    """TFLOPS and memory are those of table I of TOP: FP16 of the Jetsons, on tensor cores where they have any."""
    stated = {"jetson-nano": (0.5, 4), "jetson-tx2": (1.3, 8), "jetson-xavier-nx": (6.8, 8)}
    described = {name: gpu(name) for name in stated}
    rates = {name: own.fp16_tflops or 2 * own.fp32_tflops for name, own in described.items()}
    assert {name: (round(rate, 1), described[name].memory_gb) for name, rate in rates.items()} == stated


def test_transfer_by_hand() -> None:
    """1 MB over the A40's bridge: 4.1 us, and 10^6 bytes at 95.8 % of 56.25 GB/s."""
    assert link("nvlink", gpu("a40")).time_ms(10**6) == pytest.approx(0.0041 + 1e6 / (0.958 * 56.25e6))


def test_unknown_gpu_lists_the_known() -> None:
    """The error for a mistyped name lists all names, or those that contain what was typed."""
    with pytest.raises(PlatformError, match=r"^gpu: found V100; allowed: v100-sxm2, v100s-pcie, or the path of a"):
        gpu("V100")
    with pytest.raises(PlatformError, match=r"^gpu: found a41; allowed: .*a40, .*v100-sxm2.*, or the path of a \.yaml"):
        gpu("a41")


def test_link_that_a_gpu_lacks() -> None:
    """The RTX 3080 has no NVLink."""
    with pytest.raises(PlatformError, match=r"^link: found nvlink; allowed with gpu rtx3080: pcie, pcie3, or"):
        link("nvlink", gpu("rtx3080"))


def test_gpu_of_the_user(tmp_path: Path) -> None:
    """A file of the user's, with a link beside it."""
    shutil.copy(_FOLDER / "links" / "pcie5.yaml", tmp_path / "bus.yaml")
    path = changed(tmp_path, name="Mine", sms={"value": 10, "source": "datasheet"}, links={"bus": "bus.yaml"})
    mine = gpu(str(path))
    assert (mine.name, mine.sms, mine.label) == ("Mine", 10, str(path))
    assert link(None, mine).bandwidth_gbs == 63.02
    settings = Config(models={}, algorithms={}, platform="model", gpu=str(path))
    assert config.description_files(settings, "config.yaml") == [path, tmp_path / "bus.yaml"]


def test_overheads_of_the_user(tmp_path: Path) -> None:
    """Those that a description states take the place of those for all GPUs; the pause also counts in t(v)."""
    graph = Graph("one", (Operator("a", "task", flops=1e6, bytes=1000),), ())
    options = {"contention": "resources", "launches": "graph"}

    def costs(**overheads: float) -> CostsFile:
        stated = {name: {"value": value, "source": "guide"} for name, value in overheads.items()}
        path = changed(tmp_path, **({"overheads": stated} if stated else {}))
        return hios.profile(graph, platform="model", options={"gpu": str(path), **options})

    usual = CostOverheads(
        *(us / 1e3 for us in (GRAPH_LAUNCH_US, DEFAULT_EFFICIENCY.sync_us, DEFAULT_EFFICIENCY.stage_us))
    )
    assert costs().overheads == usual
    assert costs(sync_us=0, stage_us=4).overheads == structs.replace(usual, sync_ms=0.0, stage_ms=0.004)
    assert costs(launch_us=2).overheads == structs.replace(usual, launch_ms=0.002)
    with pytest.raises(ArtifactError, match=r"mine\.yaml: overheads\.sync_us\.source: found rumour; allowed: .*guide"):
        gpu(str(changed(tmp_path, overheads={"sync_us": {"value": 1, "source": "rumour"}})))
    with pytest.raises(ArtifactError, match=r"mine\.yaml: overheads\.sync_us\.value: found -1; allowed: at least 0"):
        gpu(str(changed(tmp_path, overheads={"sync_us": {"value": -1, "source": "guide"}})))


def test_no_shipped_description_states_overheads() -> None:
    """Parameters of predictions are fitted to papers in which they are the same for all GPUs."""
    assert not any(gpu(name).overheads for name in gpu_names())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cores": 3}, r"mine\.yaml: \(whole file\): unknown key cores; allowed: .*sms"),
        ({"sms": None}, r"mine\.yaml: \(whole file\): sms is missing"),
        ({"sms": None, "links": None}, r"mine\.yaml: \(whole file\): sms, links are missing; required: name, "),
        ({"sms": 84}, r"mine\.yaml: sms: found 84; allowed: object"),
        ({"sms": {"value": 84}}, r"mine\.yaml: sms: source is missing"),
        ({"sms": {"value": 0, "source": "guide"}}, r"mine\.yaml: sms\.value: found 0; allowed: at least 1"),
        (
            {"registers_per_sm": {"value": 696, "source": "guide"}},
            r"mine\.yaml: registers_per_sm\.value: found 696; requi",
        ),
        (
            {"threads_per_sm": {"value": 255, "source": "guide"}},
            r"threads_per_sm\.value: found 255; required: at least 256",
        ),
        ({"sms": {"value": 8, "source": "rumour"}}, r"mine\.yaml: sms\.source: found rumour; allowed: .*guide"),
        (
            {"links": {"nvlink": "nvlink9"}},
            r"mine\.yaml: links\.nvlink: found nvlink9; allowed: ethernet1g, nvlink2, .*pcie5",
        ),
    ],
)
def test_bad_descriptions_are_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    """One line with file, field, what was found and what is allowed."""
    path = changed(tmp_path, **changes)
    with pytest.raises(HiosError, match=message):
        link(None, gpu(str(path)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("? [a]\n: 1\n", r"line 1: not valid YAML \(found unhashable key\)"),
        ("a: !!python/object:os.system x\n", r"line 1: not valid YAML \(could not determine a constructor"),
        ("&a [*a]\n", r"line 1: not valid YAML \(an anchor is used within its own value\)"),
        ("name: 2020-01-01\n", r"name: found 2020-01-01, which YAML reads as date; allowed: text or a number"),
        ("1: a\n", r"\(whole file\): found the key 1, which YAML reads as int; allowed: text"),
        ('clock_mhz: "\\ud800"\n', r"\(whole file\): name, .* are missing"),
    ],
)
def test_files_that_are_no_description(tmp_path: Path, text: str, message: str) -> None:
    """YAML that cannot be read, or holds what JSON does not know, is refused in one line."""
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(HiosError, match=rf"mine\.yaml: {message}"):
        gpu(str(path))


def test_numbers_with_an_exponent(tmp_path: Path) -> None:
    """1.5e3 is a number, as in config.yaml, although YAML 1.1 takes it for text."""
    path = changed(tmp_path, clock_mhz={"value": 1234, "source": "guide"})
    path.write_text(path.read_text(encoding="utf-8").replace("value: 1234", "value: 1.5e3"), encoding="utf-8")
    assert gpu(str(path)).clock_mhz == 1500


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is said to be not there."""
    with pytest.raises(ArtifactError, match=r"none\.yaml: cannot be read: No such file"):
        gpu(str(tmp_path / "none.yaml"))


def test_configuration_is_named() -> None:
    """Errors about a configuration begin with its file."""
    with pytest.raises(HiosError, match=r"^config\.yaml: gpu: found a41; allowed"):
        config.description_files(Config(models={}, algorithms={}, platform="model", gpu="a41"), "config.yaml")
