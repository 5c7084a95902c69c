"""The learned launcher of TOP (Algorithm 1): an agent for the queues, and one for each model.

launcher_settings  how it is trained: every choice that the paper leaves open, with the paper's value
actions            numbers in [0, 1] to intervals and combined blocks; the state: progress and queues, sampled at
                   random moments; what was learned, as a safetensors file
rewards            the rewards (2), of normalized measures
environment        the simulator in steps
maddpg             actors and critics: (3) and (4), in torch; the replay buffer that they learn from
training           Algorithm 1, offline
online_launcher    Algorithm 1, online: decisions without torch, for the simulator and for servers
live_launcher      the thread that decides beside a server
"""
