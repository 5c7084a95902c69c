"""How much each deviation of the program that HIOS's authors released explains of figures 7 to 11; not in the paper."""

import statistics

from hios.charts import marks
from hios.study.figure_data import FigureData
from hios.study.published import number, published
from hios.study.registry import Figure, Rows, register
from hios.study.released_program import Deviations
from hios.study.verdicts import Comparison

_CASE = "400"
_LP, _MR = (number(f"hios_fig9.{name}_over_sequential", _CASE) for name in ("lp", "mr"))
_ALGORITHMS = ("hios-lp-inter", "hios-lp", "hios-mr-inter", "hios-mr")


def rows(data: FigureData) -> Rows:
    """A row for every generator of graphs and set of deviations: speedups over sequential, quotients of means."""
    return [
        {
            "graphs": file.generator.replace("_", " "),
            "deviations": in_words(variant.deviations),
            "mark": marks.PREDICTED.name,
            "instances": len(file.sequential_ms),
            **{
                name: statistics.mean(file.sequential_ms) / statistics.mean(variant.latency_ms[name])
                for name in _ALGORITHMS
            },
        }
        for file in data.ablations
        for variant in file.variants
    ]


def in_words(deviations: tuple[str, ...]) -> str:
    """A set of deviations in words."""
    names = Deviations.names()
    if not deviations:
        return "none (the paper)"
    if len(deviations) == len(names):
        return "all (the released program)"
    if len(deviations) == 1:
        return f"only {deviations[0].replace('_', ' ')}"
    return "all but " + ", ".join(name.replace("_", " ") for name in names if name not in deviations)


def compare(rows: Rows) -> list[Comparison]:
    """The paper's equations and the whole released program beside figure 9 at this setting."""
    stated = published("hios_fig9")
    return [
        Comparison(stated[statement], {_CASE: row[algorithm]}, f"{row['deviations']}, {row['graphs']}")
        for row in rows
        if row["deviations"] in (in_words(()), in_words(tuple(Deviations.names())))
        for statement, algorithm in (("lp_over_sequential", "hios-lp"), ("mr_over_sequential", "hios-mr"))
    ]


def why(rows: Rows) -> str:
    """How far one deviation alone leads from the paper's equations, on the program's graphs."""
    speedups = {row["deviations"]: row["hios-lp"] for row in rows if row["graphs"] == "even layers"}
    paper, clock, every = (speedups[in_words(names)] for names in ((), ("device_clock",), tuple(Deviations.names())))
    return (
        f"On graphs with even layers HIOS-LP is {paper:.2f} times as fast as sequential scheduling by the paper's "
        f"equations, {clock:.2f} times with the clock of a device alone and {every:.2f} times with all deviations; "
        f"published are {_LP:g}, and {_MR:g} of HIOS-MR."
    )


register(
    Figure(
        id="hios_ablation",
        title="How much of figures 7 to 11 the released program's deviations from the paper explain",
        varies="set of deviations and kind of graphs; speedup over sequential scheduling on 4 GPUs",
        sessions=("ablation",),
        rows=rows,
        compare=compare,
        also=("hios_fig9",),
        reason=why,
    )
)
