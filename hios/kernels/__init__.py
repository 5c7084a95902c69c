"""Relax operator -> torch call: what an operator of graph.json runs as.

``table`` says which torch call stands for a Relax operator. ``compiled_operator`` turns an operator of the graph, which
may hold several, into one Python function, and chooses its kernels: on the CPU those of ``onednn`` where they fit.
``flops`` counts its arithmetic. ``executable`` finds out whether a graph can be run, ``merged`` joins convolutions, and
``segment_module`` makes several operators one module of torch.
"""

from hios.kernels.compiled_operator import CompiledOperator, compile_operator
from hios.kernels.table import KERNELS, build

__all__ = ["KERNELS", "CompiledOperator", "build", "compile_operator"]
