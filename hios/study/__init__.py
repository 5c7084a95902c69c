"""The figures and tables of the papers: what was published, what is simulated or measured here, and how they compare.

published          the numbers of the papers, read from published.yaml, and whether a number measured here agrees
random_graphs      the instances of HIOS's simulation
simulation         a setting of it: every algorithm on its instances
released_program   what the authors' released program does otherwise than the paper says
convolutions       convolutions alone on two cores
top_experiments    TOP with its trained launcher and stages, what each adds, and experiments on scenarios, simulated
top_learning       those that train GPG or a launcher first
gpu_targets        the GPUs of the papers that are predicted for
gpu_predictions    a network on them: predicted costs, and schedules
reference_networks the papers' networks as graphs without weights or shapes
sessions           what config.yaml says about sessions: their files, and networks of other sizes and transformers
figure_data        the files of sessions, read again
registry           the figures: figures.yaml says what each is, a module a paper in figures/ how it is drawn
figure_files       a figure as CSV, LaTeX, SVG, PDF and JSON
figure_listing     the registry as text, and the published numbers of figures that are not drawn here
page_part          figures and verdicts as a report's page shows them

Shared by several figures, rows and charts: rows (tidy tables), simulated_rows (HIOS, figures 7 to 11), run_rows
(measured networks), stage_rows (stages of a block), predicted_rows (the same on the papers' GPUs), machine_rows
(several machines, and convolutions alone) and serving_rows (TOP).
"""
