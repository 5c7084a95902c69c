"""From a model to graph.json: torch.export or ONNX -> Relax -> scheduling units.

export       what MODEL names (`hios.models`) to program.pt2 or program.onnx
registered   a network of models/ by name, with seeded random weights
building     calling a function that builds a network, a user's or that of models/
declarations what a model says about itself: units, blocks
program      program.pt2: torch.export, saving and loading
archive      loading a program.pt2 without trusting who made it
onnx         program.onnx: checking, loading, ONNX Runtime
onnx_shapes  sizes of the dimensions that an ONNX file leaves open
origin       where in a model an operator comes from
calls        a Relax function as plain calls
lowering     programs of torch.export in Relax (add converters of ATen operators here)
onnx_lowering     ONNX models in Relax
onnx_rewriting    what follows from fixed shapes made constant beforehand
onnx_converters   ONNX operators that Relax's importer lacks (add converters here)
patterns     which Relax operators form one scheduling unit (add fusion patterns here)
units        matching the patterns
sums         sums that units take in
folding      batch norm, biases and constants folded in torch
examples     seeded random inputs for a graph
verification whether the extracted graph computes what the program computes
extract      all of it, to graph.json and weights.safetensors
"""
