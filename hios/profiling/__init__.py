"""Measuring the costs of operators, stages and transfers on any platform (`hios.platforms`).

measurements  repeating measurements until their medians are precise or the time is up; the stages and merges that
              algorithms ask for; measuring operators, stages and merges of one graph, also on several devices at once
cache         measurements kept for other runs and networks
transfers     which transfers are measured, and fitting the link model; measuring concurrent devices, and the
              contention model, fitted to measured stages
profile       all of it, to costs.json
predict       costs on a platform where nothing runs
"""
