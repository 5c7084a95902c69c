"""Several models on one device, whose tasks arrive at rates of their own (TOP).

scenario       scenario.yaml: models with graph, costs and blocks; rates, queues, SLO; when tasks arrive: periodic,
               Poisson or from a file; the same for every policy
measures       outcome of the tasks: counts, percentiles, fairness
stage_times    upper bound of the throughput; rates that share a device evenly; times of stages on lanes or a GPU
strict_rounds  upper bound of rounds that wait for all models, and what it makes of a margin over them
pipeline       what a policy runs: combined blocks with their times, lanes and queues
top_pipeline   combined blocks (TOP): their stages, by IOS or by GPG, and times, each computed once; how many lanes a
               run is worth
objective      which of several choices is best for all models
policies       a pipeline for every policy, by name
rules          what may start now and what is next, simulated or for real
simulator      a pipeline event by event, as plain Python or compiled by numba; what a simulation records, and what
               that amounts to; a simulation, which may stop on the way and go on with other combined blocks
launcher       a learned launcher and its training (Algorithm 1 of TOP)
calibration    measured constants: factors, overheads, co-run by pair of models, jitter
jobs           what config.yaml says about serving, and the files of the pipeline's jobs
simulate       a scenario under a policy to result.json; auto: the policy that is best on other traces; all policies
               under all launchers on the same tasks
tables         a result in the terminal

For real, on the cores of this machine:

server          requests from any thread, answers as futures
admission       requests and the queues that they wait in
dispatcher      the thread that launches tasks, starts runs on lanes and answers
instances       which instances wait before which block, and which run is next
lane            a worker process that is restarted when it dies
lane_worker     what runs inside it, what lies between two hand-overs as one call of the fastest runtime
gpu_lane        a GPU in place of the lanes: runs on its streams, or as CUDA graphs
lane_program    the part of each lane in a run: what it waits for and hands over; values between blocks, and the slots
                that hold them
run_programs    all programs of a pipeline, and which lane runs which operators
load_generator  open loop: tasks are sent on time, whether or not earlier ones completed
load            a scenario under real load to result.json
calibrate       measurement of the constants, in about a minute
lane_trace      what ran on which lane, and each request, for Perfetto
metrics         metrics in the text format of Prometheus; progress of a load, in the terminal
open_inference  messages of the Open Inference Protocol: JSON and binary tensors to tensors, and back; their
                OpenAPI description
http_server     a server over HTTP
"""
