"""SqueezeNet on small images."""

from tests.frontends.small_networks import files, graph, graph_file

__all__ = ["files", "graph", "graph_file"]
