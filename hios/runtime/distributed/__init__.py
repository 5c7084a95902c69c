"""Executing a schedule over processes that a launcher starts, on one node or several: every device is a rank.

transports      what moves tensors: messages, sent and received without blocking
gloo            that in torch.distributed, under torchrun
nccl            the same, with values between GPUs in NCCL
mpi             that in MPI, under mpirun or srun
connection      meeting the other ranks over one of them
agreement       what all ranks have to be given alike
exchange        values of a program as messages; a rank's memory
clock_sync      barrier, and how far the clocks of other hosts are off
topology        who runs where: hosts, and the core of every rank
progress_state  what a rank is doing, for messages about it
control         every rank's line to rank 0, by which all end together
monitor         rank 0's end of these lines: what the ranks report, and who is to blame when one fails
guard           a parent for a rank under mpirun, so that what it says last is heard
rank_runner     what a rank does in a turn, and the outputs it checks
session         a rank's part in a session (`hios.runtime.rounds`), and run.json
"""
