"""The figures and tables of the papers: what was published, what is simulated or measured here, and how they compare.

published          the numbers of the papers, read from published.yaml
random_graphs      the instances of HIOS's simulation
simulation         a setting of it: every algorithm on its instances
released_program   what the authors' released program does otherwise than the paper says
sessions           where a figure's data lie in a folder of results
registry           the figures, one file each in figures/
verdicts           whether what was found here agrees with what was published
figure_files       a figure as CSV, LaTeX, SVG, PDF and JSON
"""
