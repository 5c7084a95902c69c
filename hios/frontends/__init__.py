"""From a model to graph.json: torch.export or ONNX -> Relax -> scheduling units.

export              a model (`hios.frontends.models`) to program.pt2, with open dimensions fixed; networks
                    of models/ by name, with seeded random weights, and those of a user's function
model_declarations  what a model declares about itself: units, blocks
program             program.pt2: torch.export, inlining autocast regions, comparing with the module, saving and loading
program_interface   inputs and outputs of a program: tensors, and the structure they come in; where in a
                    model an operator comes from
pt2_archive         loading a program.pt2 without trusting its author
onnx_export         programs of torch.export as ONNX models
onnx_file           program.onnx: checking, loading, ONNX Runtime
onnx_rewriting      sizes for the dimensions that an ONNX file leaves open; constant folding of what fixed shapes
                    determine
relax_calls         a Relax function as plain calls
torch_lowering      programs of torch.export in Relax; what Relax cannot import becomes opaque calls; what its
                    importer makes wrong becomes other operators
onnx_lowering       ONNX models in Relax; what Relax cannot import becomes opaque calls
units               which Relax operators form one scheduling unit (add fusion patterns here); matching the patterns,
                    and sums that join the unit that reads them
example_inputs      seeded random inputs for a graph
extraction_check    whether the extracted graph computes what the program computes; how much rounding to float32
                    changes the outputs of a program
extract             all of it, to graph.json and weights.safetensors; folding batch norm, biases and constants
tolerances          what counts as equal outputs, and which difference rounding explains
known_differences   operators and dtypes that other runtimes are known to answer differently; its .json is made by
                    benchmarks/runtime_faithfulness.py
openvino            programs of torch.export in OpenVINO
"""
