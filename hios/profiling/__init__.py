"""Measuring the costs of operators, stages and transfers on any platform (`hios.platforms`).

measurements    repeating measurements until their medians are precise or the time is up; measuring operators, stages
                and merges of one graph, also on several devices at once
cache           measurements kept for other runs and networks
stage_requests  the stages and merges that algorithms ask for
transfers       which transfers are measured, and fitting the link model
contention      measuring concurrent devices, and the contention model, fitted to measured stages
profile         all of it, to costs.json
predict         costs on a platform where nothing runs
"""
