"""The file formats, one class each: the source of the JSON Schemas under schemas/ (``python schemas/generate.py``).

A class says which keys a JSON object has, of which types, within which limits and with which meaning; the docstring of
a class and the text under a field become descriptions in the schema. ``hios.files.artifacts`` reads and writes them.
Those of graph.json, costs.json and schedule.json are in ``hios.core``.

Not formats, but what readers of several of these files share: ``onnx_session`` runs ONNX Runtime, ``aten_operators``
and ``onnx_operators`` say which operators a file may name.
"""
