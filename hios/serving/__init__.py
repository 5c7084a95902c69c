"""Several models on one device, whose tasks arrive at rates of their own (TOP).

scenario         scenario.yaml: models with graph, costs and blocks; rates, queues, SLO
arrivals         when tasks arrive: periodic, Poisson or from a file; the same for every policy
measures         what became of the tasks: counts, percentiles, fairness
work_bound       what no policy can pass; rates that share a device evenly
stage_times      times of stages on lanes or a GPU
pipeline         what a policy runs: combined blocks with their times, lanes and queues
combined_stages  stages of combined blocks, by IOS or by GPG
top_pipeline     pipelines of combined blocks (TOP), the times of each computed once
policies         a pipeline for every policy, by name
simulator        the reference: discrete events, one task at a time to be followed
event_kernel     the same compiled by numba, event by event
stepping         either of them in steps, with other combined blocks on the way
launcher         a learned launcher and its training (Algorithm 1 of TOP)
choosing         auto: the policy that is best on other traces
calibration      measured constants: factors, overheads, co-run by pair of models, jitter
jobs             what config.yaml says about serving, and the files of the pipeline's jobs
simulate         a scenario under a policy to result.json
result_table     a result in the terminal

For real, on the cores of this machine:

server           requests from any thread, answers as futures
admission        requests and the queues that they wait in
dispatcher       the thread that launches tasks, starts runs on lanes and answers
instances        which instances wait before which block, and which run is next
lane             a worker process that is started again when it dies
lane_worker      what runs inside it
lane_orders      which lane runs which operators of a run
lane_program     the same as each lane does it: what it waits for and hands over
run_programs     all programs of a pipeline
block_values     values between blocks, and the slots that hold them
load_generator   tasks sent on time, whatever has become of those before
load_session     a scenario under a policy to result.json
calibrating      these constants, measured in about a minute
model_outputs    what a model itself computes, as the reference
lane_trace       what ran on which lane, for Perfetto
metrics_file     metrics in the text format of Prometheus
live_table       how it goes, in the terminal
"""
