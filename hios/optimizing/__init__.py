"""``hios.optimize``: from a model to a module that is called in the same way and runs it in the fastest way measured.

optimize_options     the options of the user
budget               the time limit, and progress messages
cache_key            what a cached choice or a prepared model depends on: structure, code, weights
choice_cache         choices and prepared models on disk
tracing              a model with nested inputs and outputs as a graph with flat ones, and how calls fit it
fast_paths           operators that PyTorch fuses by itself, written out
purity               whether a model has side effects: only one without is run more often than its user runs it
guards               whether a model has changed since it was optimized
candidates           what can run a model: itself, another runtime, or a schedule on workers
runtimes             the whole model in OpenVINO, ONNX Runtime or TorchInductor
runtime_conversion   converting for a runtime in a separate process
schedule_candidates  schedules for the device counts that are predicted to be fast
preparation          the model to be optimized, and preparing all candidates within the budget
race                 comparing candidates in turns on the example inputs
online_race          comparing candidates in the user's own calls, after a choice on a busy machine
report               the report: what was chosen, with a row of numbers per candidate
autotune             the choice: a cached one, or the winner of a race, and the rows of its report
optimized_module     the module that the user gets
optimize             from a model to that module
partition            how to divide the cores of the machine into devices for a network
"""
