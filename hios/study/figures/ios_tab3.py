"""IOS, table 3: schedules of other batch sizes and other GPUs."""

from __future__ import annotations

from hios.charts import marks
from hios.study import machine_rows as machines
from hios.study import network_runs as runs
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "ios_tab3"


def rows(data: FigureData) -> Rows:
    """A row for every batch size, batch size that a schedule by IOS was made for, and mark; and those of devices."""
    return runs.batch_rows(data, ("ios",)) + machines.device_rows(data)


def _of_batches(rows: Rows) -> Rows:
    return [row for row in rows if "made on" not in row]


def _of_devices(rows: Rows) -> Rows:
    return [row for row in rows if "made on" in row]


def compare(rows: Rows) -> list[Comparison]:
    """Milliseconds by what the schedule was made for; of GPUs alone."""
    rows = _of_batches(rows)
    if not runs.on_gpu(rows):
        return []
    measured = [row for row in rows if row["network"] == "inception_v3" and row["mark"] == marks.MEASURED.name]
    return [
        Comparison(entry, numbers)
        for name, entry in published(_ID).items()
        if (
            numbers := {
                f"for {row['made for batch']}": row["ms"] for row in measured if f"batch_{row['batch']}" == name
            }
        )
    ]


def finding(rows: Rows) -> str:
    """By how much schedules for other batch sizes, and of other machines, are longer than the own one."""
    measured = [row for row in _of_batches(rows) if row["mark"] == marks.MEASURED.name]
    own = {(row["network"], row["batch"]): row["ms"] for row in measured if row["made for batch"] == row["batch"]}
    texts = [
        f"{row['network']} with batch {row['batch']} by the schedule for {row['made for batch']} {100 * change:+.1f} %"
        for row in measured
        if row["made for batch"] != row["batch"] and (row["network"], row["batch"]) in own
        for change in [row["ms"] / own[row["network"], row["batch"]] - 1]
    ]
    of_batches = f"Latency relative to the schedule made for the same batch size: {', '.join(texts)}." if texts else ""
    return " ".join(filter(None, [of_batches, machines.specialization(_of_devices(rows))]))


def why(rows: Rows) -> str:
    """How other devices come in."""
    if not _of_devices(rows):
        return "Schedules of other machines are compared where `study: archives:` names archives of their runs."
    return (
        "Schedules of other machines did not run here: their times follow from the costs that were measured on each "
        "machine (hios retarget and hios execute run them)."
    )


register(
    Figure(
        id=_ID,
        title="Schedules specialized for batch sizes and for devices",
        varies="batch size that a schedule by IOS is made for and that it runs with; latency and machine alike",
        sessions=("batches",),
        optional=("archives", "networks"),
        rows=rows,
        compare=compare,
        finding=finding,
        reason=why,
    )
)
