"""From a model to graph.json: torch.export -> Relax -> scheduling units.

registered   a network of models/ by name, with seeded random weights
program      program.pt2: torch.export, saving and loading
lowering     Relax: import, canonicalisation, dead code; its function as plain calls
patterns     which Relax operators form one scheduling unit (add fusion patterns here)
units        matching the patterns
folding      batch norm, biases and constants folded in torch
verification whether the extracted graph computes what the program computes
extract      all of it, to graph.json and weights.safetensors
"""
