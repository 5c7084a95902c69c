"""The scheduling problem and its solution: graph, costs, schedule, evaluator, checker, bounds. No torch, no TVM."""
