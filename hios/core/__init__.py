"""The scheduling problem and its solution. No torch, no TVM.

graph        G = (V, E), and graph.json
costs        t(v), t(S), t(u,v), and costs.json
problem      both by operator number; t(S) of stages that were not measured, by the contention model
sharing      what operators that run at once leave each other (contention "resources")
merging      convolutions that can run as one
contraction  a problem in which every merge is one operator
blocks       parts of a graph that run one after another
schedule     plans and schedules, and schedule.json
evaluate     start and finish of every operator of a plan
check        the same from the rows of a schedule; repeats the formulas on purpose, so change both
bounds       what no schedule can be faster than
bound_check  whether the bounds that a schedule states are right
retarget     a schedule of the same graph with other shapes
feedback     costs as operators and hand-overs took inside of a schedule
drift        how the machine's speed changed meanwhile
sums         sums of floats that are the same on every Python
"""
