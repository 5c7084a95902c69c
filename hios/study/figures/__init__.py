"""One file a figure or table of a paper, named like its id; each registers itself. `hios.study.registry` finds them."""
