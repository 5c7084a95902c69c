"""The parts of hios-opt.

annealing        one chain of simulated annealing
wide_search      the search with operators on several devices
moves            both searches, compiled
parallel_search  several chains in parallel
lower_bounds     lower bounds: heads, tails and the work between them; operators on several devices
proof            proof of optimality by constraint programming
"""
