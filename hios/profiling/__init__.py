"""Measuring what operators, stages and transfers cost on a platform.

statistics   median, spread and confidence of repeated measurements
sampling     repeating until medians are certain, or the time is spent
signature    operators that cost the same: equal calls on equal shapes
settings     what measurements depend on beside: processor, clocks, software, code
cache        measurements kept for other runs and networks
kernels      timing operators, stages and merges inside workers
handovers    timing transfers inside workers
questions    the stages and merges that algorithms ask for
session      measuring operators, stages and merges of one graph
between      measuring transfers, and devices that run at once
contention   the contention model, fitted to measured stages
links        latency and bandwidth, fitted to measured transfers
profile      all of it, to costs.json
"""
