"""Executing schedules on devices.

program   a schedule as what each device does
device    running such a program inside a worker
values    the tensors of a program, and operators that read and write them
staged    stages one after another, their groups beside each other
streams   streams beside each other, operators waiting for values where they must
markers   which operator a device is at, for messages
weights   weights.safetensors, checked against the graph
reference  the model itself inside a worker: eager PyTorch, torch.compile, ONNX Runtime
baselines  which of them take part
competitors  who else does: schedules, the sequential one on one device, independent copies
outputs   whether what they compute is what the reference does
workers   the workers that run the schedules, as a session sees them
cuda      schedules on GPUs, all of them in one process
session   all of them interleaved in one session, outputs checked
bootstrap  intervals of speedups
results   what run.json says of it
choosing  the fastest of several, and the steadiest of those that cannot be told from it
auto      the fastest of all, chosen by measurement
table     the same in text
distributed  all of it with every device a rank of torchrun or mpirun
trace     a run as a Chrome/Perfetto trace
engine    workers that keep a network loaded and run it whenever they are asked to
"""
