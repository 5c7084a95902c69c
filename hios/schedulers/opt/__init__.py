"""The parts of hios-opt.

annealing        chains of simulated annealing, over stages, and with operators on several devices
staged_kernel    the search over stages, compiled
wide_kernel      the search over operators on several devices, compiled
moves            what both compiled searches have in common
parallel_search  several chains in parallel
lower_bounds     lower bounds: heads, tails and the work between them; operators on several devices; proof of
                 optimality by constraint programming
"""
