"""Relax operator -> torch call: what an operator of graph.json runs as.

``table`` says which torch call stands for a Relax operator; ``unit`` turns an operator of the graph, which may
hold several, into one Python function; ``flops`` counts its arithmetic.
"""

from hios.kernels.table import KERNELS, build
from hios.kernels.unit import CompiledOperator, compile_operator

__all__ = ["KERNELS", "CompiledOperator", "build", "compile_operator"]
