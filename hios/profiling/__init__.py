"""Measuring what operators, stages and transfers cost, on whatever platform (`hios.platforms`).

sampling      repeating until medians are certain, or the time is spent
cache         measurements kept for other runs and networks
requests      the stages and merges that algorithms ask for
measurements  measuring operators, stages and merges of one graph
transfers     measuring transfers, and devices that run at once
contention    the contention model, fitted to measured stages
links         latency and bandwidth, fitted to measured transfers
profile       all of it, to costs.json
"""
