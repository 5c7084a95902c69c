"""Measuring what operators, stages and transfers cost on a platform.

statistics   median, spread and confidence of repeated measurements
sampling     repeating until medians are certain, or the time is spent
signature    operators that cost the same: equal calls on equal shapes
settings     what measurements depend on beside: processor, clocks, software, code
cache        measurements kept for other runs and networks
bench        what a platform measures
cores        the bench of cores: a worker a device
kernels      timing operators, stages and merges inside the workers of cores
handovers    timing transfers inside them
gpus         the bench of GPUs: one worker for all
cuda         timing operators, stages, merges and transfers inside it
graphs       a GPU with CUDA graphs of chains of operators
chains       how long these chains are, and what their times say
resources    what kernels ask of a GPU, from a trace of torch.profiler
subjects     what is timed: operators with random weights and inputs
kinds        how stages and merges are named
questions    the stages and merges that algorithms ask for
session      measuring operators, stages and merges of one graph
between      measuring transfers, and devices that run at once
contention   the contention model, fitted to measured stages
links        latency and bandwidth, fitted to measured transfers
profile      all of it, to costs.json
"""
