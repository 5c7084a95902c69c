"""The parts of hios-opt.

annealing         one chain of simulated annealing
wide_search       the search with operators on several devices
chain_arrays      what the chains of both have in common
search_kernel     both searches, compiled
parallel_search   several chains in parallel
interval_bound    a lower bound from heads, tails and the work between them
wide_bound        a lower bound for operators on several devices
proof             proof of optimality by constraint programming
"""
