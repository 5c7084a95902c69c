"""``hios.optimize``: from a model to a module that is called in the same way and runs it in the fastest way measured.

options       the options of the user
report        the time limit, and progress messages; the report: what was chosen, with a row of numbers per candidate
background    optimizing in another process while the model is used
choice_cache  what a cached choice or a prepared model depends on: structure, code, weights; choices and prepared
              models on disk
tracing       a model with nested inputs and outputs as a graph with flat ones, and how calls fit it
module        operators that PyTorch fuses by itself, written out; the module that the user gets
purity        whether a model has side effects: only one without is run more often than its user runs it
candidates    what can run a model: itself, another runtime, or a schedule on workers
runtimes      the whole model in OpenVINO, ONNX Runtime or TorchInductor; converting for a runtime in a separate
              process
schedules     schedules for the device counts that are predicted to be fast
partition     how to divide the cores of the machine into devices for a network
preparation   the model to be optimized, and preparing all candidates within the budget
mutation_detection  whether dictionaries, objects and tensors are untouched, natively
other_inputs  inputs made from the example, on which every way is compared with the model
race          comparing candidates in turns on the example inputs; comparing candidates in the user's own calls, after
              a choice on a busy machine
autotune      the choice: a cached one, or the winner of a race, and the rows of its report
dynamo        the same for torch.compile(backend="hios")
optimize      from a model to that module
"""
