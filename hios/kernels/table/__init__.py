"""The kernel table: one torch call for every Relax operator that hios runs.

An entry is a builder. It takes the operator's attributes (by their Relax names, as in graph.json) and returns a
function of its tensor arguments, so that everything that is known in advance is computed once, before any run.
Numbers that Relax passes as arguments, such as the bounds of a clip, are arguments here too. A builder refuses
attribute values that it does not support.

To add an operator, add a builder to the file of its kind; tests compare every entry with eager torch.
"""

from hios.kernels.table import elementwise, images, layout, matrix, reduction  # noqa: F401 they register kernels
from hios.kernels.table.kernel_registry import ALLOCATES, IN_PLACE, KERNELS, Kernel, build, kernel

__all__ = ["ALLOCATES", "IN_PLACE", "KERNELS", "Kernel", "build", "kernel"]
