"""Settings of config.yaml as options of commands, and options as settings."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from hios.errors import HiosError
from hios.pipeline import config

SMALL: dict[str, Any] = {"models": {"net": {}}, "algorithms": {"sequential": {}}}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with one network."""
    (tmp_path / "net.py").touch()
    return tmp_path


def test_options() -> None:
    """Settings become options: lists repeat them, True is a flag, False nothing, and text is quoted."""
    values = {"model": "x", "image_size": 64, "classifier": True, "trusted": False, "stages_of": ["a", "b c"]}
    assert config.options(values, without="model") == "--image-size 64 --classifier --stages-of a --stages-of 'b c'"


def test_options_of_a_network(models: Path) -> None:
    """What a configuration says of a network reaches export and extract, values as YAML reads them."""
    entry: dict[str, Any] = {"model": "net", "image_size": 64, "classifier": True, "units": "operator"}
    entry["options"] = {"depth": 2, "kind": "3", "wide": False, "rate": 1e-5, "tag": "weights/🙂 \n\x7f" + " x" * 99}
    entry["options"] |= {"commit": "123e4567", "large": 7e10}
    settings = config.resolve({**SMALL, "models": {"net": entry}}, "config.yaml", models=models)
    words = shlex.split(config.export_options(settings.models["net"]))
    assert words[:3] == ["--image-size", "64", "--classifier"]
    assert words[3::2] == ["--option"] * 7
    assert config.parsed_options(words[4::2], {}) == entry["options"]
    assert config.parsed_options(['a="7e10"', "b=7e10", "c=-1e-5"], {}) == {"a": "7e10", "b": 70000000000, "c": -1e-5}
    assert config.extract_options(settings.models["net"]) == "--units operator"


def test_shapes_and_limits_of_inputs(models: Path) -> None:
    """Shapes of an ONNX file reach export, limits extract, as their options read them; no other model has shapes."""
    entry = {"model": "det.onnx", "inputs": {"x": [1, 3, 48, 320], "a=b c": [2]}, "below": {"tokens": 9}}
    settings = config.without_files({**SMALL, "models": {"net": entry}}, "config.yaml", models=models)
    words = shlex.split(config.export_options(settings.models["net"]))
    assert words[::2] == ["--input"] * 2
    assert config.parsed_shapes(words[1::2]) == {"x": (1, 3, 48, 320), "a=b c": (2,)}
    limits = shlex.split(config.extract_options(settings.models["net"]))
    assert config.parsed_limits(limits[1:]) == {"tokens": 9}
    with pytest.raises(
        HiosError, match=r"models\.net: inputs: found with another kind of model; allowed: for \.onnx and \.pt2 files"
    ):
        config.without_files({**SMALL, "models": {"net": {**entry, "model": "net"}}}, "config.yaml", models=models)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["depth"], "--option: found depth; allowed: name=value"),
        (["a b=1"], "--option: found a b=1; allowed: name=value"),
        (["depth=1", "depth=2"], "--option: depth is given twice; allowed: once"),
        (["image_size=3"], "--option: image_size is given twice; allowed: once"),
        (["depth=["], "--option: depth: found [, which is not YAML; put it in quotes"),
        (["depth=2020-99-99"], "--option: depth: found 2020-99-99, which is not YAML; put it in quotes"),
        (["depth=!!bool maybe"], "--option: depth: found !!bool maybe, which is not YAML; put it in quotes"),
        (["depth=[1]"], "--option: depth: found [1]; allowed: text, a number, true or false"),
        (["depth="], "--option: depth: found nothing; allowed: text, a number, true or false"),
    ],
)
def test_bad_options_of_a_model(texts: list[str], message: str) -> None:
    """Options of a model without name or value, given twice, or of a kind that no option is, are refused."""
    with pytest.raises(HiosError) as caught:
        config.parsed_options(texts, {"image_size": 1})
    assert str(caught.value) == message


def test_values_that_snakemake_takes_for_text() -> None:
    """Lists and mappings, with what is in them, and true and false as YAML spells them."""
    given = ["devices=[1, 2]", "virtual=true", "study={a: false}", "seed=1", "results=trueish", "x=True"]
    assert config.nested_values(given) == {"devices": [1, 2], "virtual": True, "study": {"a": False}}


def test_the_papers_training_replaces_defaults_alone(models: Path) -> None:
    """With scale full, what the configuration says of TOP's training counts, and the paper's for the rest."""
    asked = {**SMALL, "study": {"scale": "full", "top": {"steps": 9000, "launcher_size": "default"}}}
    words = config.top_options(config.without_files(asked, "config.yaml", models=models), ["a"])
    assert "--steps 9000 " in words
    assert "--launcher-steps 8000 " in words
    assert "--launcher-size default " in words
