"""IOS, figure 13: chains reach the bound of the complexity."""

from itertools import pairwise

from hios.graph import Edge, Graph, Operator
from hios.schedulers.ios import search_space
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "ios_fig13"
_LENGTH = 2


def rows(data: FigureData) -> Rows:
    """A row for 1, 2 and 3 chains: pairs of a state and an ending, the empty ending too, and the bound."""
    bounds = []
    for chains in (1, 2, 3):
        space = search_space(_chains(chains, _LENGTH))
        # search_space leaves out the empty ending, one for each state, which Lemma 3 counts.
        pairs, bound = space.transitions + space.states, ((_LENGTH + 2) * (_LENGTH + 1) // 2) ** chains
        bounds.append({"chains d": chains, "operators c": _LENGTH, "pairs": pairs, "C(c+2, 2)^d": bound})
    return bounds


def _chains(chains: int, length: int) -> Graph:
    names = [[f"v{chain}_{place}" for place in range(length)] for chain in range(chains)]
    edges = [Edge(one, other) for row in names for one, other in pairwise(row)]
    operators = tuple(Operator(name, "task") for row in names for name in row)
    return Graph("chains", operators, tuple(edges), blocks=(tuple(name for row in names for name in row),))


def compare(rows: Rows) -> list[Comparison]:
    """The count beside the formula."""
    pairs = {f"d {row['chains d']}": float(row["pairs"]) for row in rows}
    return [Comparison(published(_ID)["transitions"], pairs)]


register(
    Figure(
        id=_ID,
        title="Independent chains reach the bound on the search",
        varies="number of chains of two operators; pairs (S, S') of the search",
        seconds=2,
        rows=rows,
        compare=compare,
    )
)
