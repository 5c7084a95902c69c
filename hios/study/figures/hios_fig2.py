"""HIOS, figure 2: transfers over convolutions."""

from hios.charts import marks
from hios.formats.convolutions_file import ConvolutionSize
from hios.platforms.model import descriptions
from hios.study import convolution_rows as sizes
from hios.study.figure_data import FigureData
from hios.study.model_validation import error_in_words
from hios.study.registry import Figure, Row, Rows, register

_RATIO = "hand-over over convolution"
_HERE = "shared memory"
#: The paper's GPUs and links that the platform model describes; it has no A5500.
_PREDICTED = (("a40", "nvlink"), ("v100s-pcie", "pcie"))


def rows(data: FigureData) -> Rows:
    """A row for every image size: a convolution on one core, and handing its output over to another.

    And one for the same size and every pair of GPUs of the paper, predicted.
    """
    measured = [{**row, "link": _HERE} for row in sizes.size_rows(data, _values)]
    return measured + [_predicted(row, *gpus) for gpus in _PREDICTED for row in measured]


def _predicted(row: Row, gpu: str, link: str) -> Row:
    known = descriptions.gpu(gpu)
    between = descriptions.link(link, known)
    predicted = sizes.predicted_convolution(row["image size"], row["channels"], known, between)
    return {
        "image size": row["image size"],
        "channels": row["channels"],
        "platform": "model",
        "mark": marks.PREDICTED.name,
        "convolution ms": predicted.alone_ms,
        "hand-over ms": predicted.transfer_ms,
        "output bytes": predicted.output_bytes,
        _RATIO: predicted.transfer_ms / predicted.alone_ms,
        "link": f"{known.name}, {between.name}",
    }


def _values(size: ConvolutionSize) -> dict[str, float]:
    return {
        "convolution ms": size.alone_ms,
        "hand-over ms": size.hand_over_ms,
        "output bytes": size.output_bytes,
        _RATIO: size.hand_over_ms / size.alone_ms,
    }


def finding(rows: Rows) -> str:
    """The quotient by image size."""
    links = {name: [row for row in rows if row["link"] == name] for name in dict.fromkeys(row["link"] for row in rows)}
    texts = [f"Predicted for {name}: {sizes.listed(own, _RATIO)}." for name, own in links.items() if name != _HERE]
    here = sizes.listed(links[_HERE], _RATIO)
    return " ".join(
        [f"Time to hand over the output of a convolution, relative to the time of the convolution: {here}.", *texts]
    )


def why(rows: Rows) -> str:
    """What links are here, and what the others rest on."""
    links = dict.fromkeys(row["link"] for row in rows if row["link"] != _HERE)
    errors = " ".join(error_in_words(gpu, descriptions.gpu(gpu).name) for gpu, _ in _PREDICTED)
    return (
        f"Here the link is shared memory between two processes; {' and '.join(links)} are predicted from data sheets, "
        f"which no published transfer time validates, and the A5500 of the paper has no description. {errors}"
    )


register(
    Figure(
        id="hios_fig2",
        title="Transfer time over the time of a convolution",
        varies="image size; time of a transfer between two devices over the time of the convolution that it follows",
        needs=("2 devices",),
        sessions=("convolutions",),
        rows=rows,
        finding=finding,
        chart=sizes.chart_over_sizes(_RATIO, _RATIO, "link"),
        reason=why,
    )
)
