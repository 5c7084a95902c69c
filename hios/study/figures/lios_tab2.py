"""LIOS, table II: how the time of operators changes from run to run."""

from hios.charts import marks
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, reason, register

#: Changes in per cent that the table counts operators by.
_CHANGES = (1, 5, 10)


def rows(data: FigureData) -> Rows:
    """A row for every network: operators whose 20th and 80th percentile differ by more than a share of the median."""
    return [
        {
            "network": label,
            "platform": network.run.platform.name,
            "mark": marks.MEASURED.name,
            "operators": len(spreads),
            **{f"above {change} %": sum(spread > change / 100 for spread in spreads) for change in _CHANGES},
        }
        for label, network in data.networks.items()
        if (
            spreads := [
                (cost.p80_ms - cost.p20_ms) / cost.time_ms
                for cost in network.costs.operators.values()
                if cost.p20_ms is not None and cost.p80_ms is not None and cost.time_ms > 0
            ]
        )
    ]


def finding(rows: Rows) -> str:
    """How many operators change by more than 1 %."""
    texts = [f"{row['above 1 %']} of {row['operators']} operators of {row['network']}" for row in rows]
    return f"The time changes by more than 1 % for {', '.join(texts)}."


register(
    Figure(
        id="lios_tab2",
        title="Variation of operator times between runs",
        varies="network; number of operators whose time changes by more than 1, 5 and 10 %",
        sessions=("networks",),
        rows=rows,
        finding=finding,
        reason=reason(
            "Here the change is from the 20th to the 80th percentile; the paper does not say which it means."
        ),
    )
)
