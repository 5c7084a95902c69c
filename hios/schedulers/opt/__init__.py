"""The parts of hios-opt.

annealing         one chain of simulated annealing (compiled in annealing_kernel)
parallel_search   several chains in parallel
wide_search       the search with operators on several devices (compiled in wide_kernel)
interval_bound    a lower bound from heads, tails and the work between them
wide_bound        a lower bound for operators on several devices
proof             proof of optimality by constraint programming
"""
