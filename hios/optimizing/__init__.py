"""One line for engineers: a model in, the fastest way that was found to run it out, as a module called in the same way.

options    what the user may ask for
report     what was chosen, and the measured numbers behind it
cache      costs, schedules and choices on disk
tracing    a model with any inputs and outputs as a graph with flat ones
purity     whether a model only computes: only then is it run more often than its user runs it
watching   whether a model is still the one that was optimised
facts      what the speed of a model by itself depends on
ways       what may run the model: itself, or a schedule on workers
contest    candidates taking turns with the example inputs
choosing   which way is taken: one that was kept, or the winner of a contest
module     the module that the user gets
optimize   from a model to that module
partition  how to divide the cores of the machine into devices for a network
"""
