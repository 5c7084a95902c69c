"""Measuring what operators, stages and transfers cost on a platform.

statistics   median and spread of repeated measurements
signature    operators that cost the same: equal calls on equal shapes
kernels      timing operators, stages and transfers inside workers
profile      all of it, to costs.json
"""
