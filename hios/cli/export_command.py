"""``hios export``: a model to a program."""

from __future__ import annotations

from pathlib import Path

import click

from hios.cli import files
from hios.cli.options import check_settings, output_option, refuse_overwriting, settings_options, trust_option
from hios.errors import HiosError
from hios.formats.settings import Measuring, Scalar


@click.command("export")
@click.argument("model")
@output_option("program.pt2, or program.onnx for a model in ONNX,")
@click.option("--image-size", type=int, help="Height and width of the image in pixels.")
@click.option("--batch-size", type=int, help="Images in a batch.")
@click.option("--classifier", is_flag=True, help="Include the classifier, which the papers leave out.")
@click.option(
    "--option",
    "more",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other keyword argument of the function that builds the model, its value as in YAML. May be given more "
    "than once.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=SIZES",
    help="Shape of an input of an .onnx or .pt2 file that leaves dimensions open, such as x=1x3x224x224 (.pt2 files "
    "need --trust too), or the value of an .onnx input that is a single integer, such as sr=16000. May be given more "
    "than once.",
)
@settings_options(Measuring, "seed", texts={"seed": "Seed of random weights."})
@trust_option
def command(
    model: str,
    output: Path,
    image_size: int | None,
    batch_size: int | None,
    classifier: bool,
    more: tuple[str, ...],
    inputs: tuple[str, ...],
    seed: int,
    trust: bool,
) -> None:
    """Export MODEL with torch.export, or check and copy one that was exported already.

    MODEL is the name of a network in models/; or package.module:function, a function of yours that returns the module
    and a tuple of example inputs, and whose keyword parameters are options; or a .pt2 or .onnx file.
    """
    from hios.config_options import parsed_options, parsed_shapes

    sizes = {"image_size": image_size, "batch_size": batch_size}
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise HiosError(f"--{name.replace('_', '-')}: found {value}; allowed: at least 1")
    given: dict[str, Scalar] = {name: value for name, value in sizes.items() if value is not None}
    if classifier:
        given["classifier"] = True
    check_settings(Measuring, {"seed": seed})
    refuse_overwriting([Path(model)], [output])
    options = parsed_options(more, given)
    click.echo(
        f"{output}: {files.export(model, output, options, inputs=parsed_shapes(inputs), seed=seed, trusted=trust)}"
    )
