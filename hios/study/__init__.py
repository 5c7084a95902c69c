"""The figures and tables of the papers: what was published, what is simulated or measured here, and how they compare.

published          the numbers of the papers, read from published.yaml
random_graphs      the instances of HIOS's simulation
simulation         a setting of it: every algorithm on its instances
released_program   what the authors' released program does otherwise than the paper says
convolutions       convolutions alone on two cores
top_experiments    experiments of TOP on scenarios, simulated
top_learning       those that train GPG or a launcher first
variants           networks of other image and batch sizes, and transformers
reference_networks the papers' networks as graphs without weights or shapes
settings           what config.yaml says about sessions, and their files
figure_data        the files of sessions, read again
registry           the figures, one file each in figures/
verdicts           whether a number measured here agrees with what was published
figure_files       a figure as CSV, LaTeX, SVG, PDF and JSON
undrawn_figures    figures that are not drawn here: their published numbers, and what it takes to measure them
figure_listing     the registry as text

Shared by several figures: simulated_series (HIOS, figures 7 to 11), network_runs and run_findings (measured networks),
predicted_rows (the same on the papers' GPUs), machine_rows (several machines), convolution_rows, serving_rows, and
top_rows (TOP).
"""
