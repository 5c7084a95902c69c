"""The parts of hios-opt.

annealing        chains of simulated annealing side by side, over stages, and with operators on several devices
staged_kernel    the search over stages, compiled
wide_kernel      the search over operators on several devices, compiled
moves            what both compiled searches have in common: records, lists and how they are timed
search_limits    when a search ends
lower_bounds     lower bounds: heads, tails and the work between them; operators on several devices; proof of
                 optimality by constraint programming
"""
