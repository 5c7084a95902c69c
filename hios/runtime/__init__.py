"""Executing schedules, on whatever platform (`hios.platforms`).

reference    the model itself inside a worker: eager PyTorch, torch.compile, ONNX Runtime
baselines    which of them take part
competitors  who else does: schedules, the sequential one on one device, independent copies
session      all of them interleaved in one session, outputs checked
results      what run.json says of it
choosing     the fastest of several, and the steadiest of those that cannot be told from it
auto         the fastest of all, chosen by measurement
table        the same in text
distributed  all of it with every device a rank of torchrun or mpirun
trace        a run as a Chrome/Perfetto trace
"""
