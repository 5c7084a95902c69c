"""One line for engineers: a model in, the fastest way that was found to run it out, as a module called in the same way.

options      what the user may ask for
budget       the time that all of it may take, and progress
model_code   the code of a model, in files and typed in
cache_key    what a choice and a prepared model rest on: structure, code, state
cache        choices on disk, and what runs them, ready to be loaded
binding      arguments by position and by name
tracing      a model with any inputs and outputs as a program and a graph with flat ones
fast_paths   operators that PyTorch fuses by itself, written out
purity       whether a model only computes: only then is it run more often than its user runs it
guards       whether a model is still the one that was optimised
candidates   what can run a model: itself, another runtime, or a schedule on workers
runtimes     the whole model in OpenVINO, ONNX Runtime or what TorchInductor compiles
conversion   converting for a runtime in a process of its own
proposals    schedules of the divisions of the machine that are predicted to be fast
preparation  all candidates made ready, as far as the budget goes
race         candidates taking turns with the example inputs
online_race  candidates taking turns in the user's own calls, where a choice was made beside other work
report       what was chosen, and a row of numbers for every way
rows         the rows of a report
autotune     which way is taken: one that was kept, or the winner of a race
module       the module that the user gets
optimize     from a model to that module
partition    how to divide the cores of the machine into devices for a network
"""
