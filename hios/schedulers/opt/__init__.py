"""The parts of hios-opt: a search (``annealing``, compiled in ``kernel``), bounds (``bound``) and proof (``proof``)."""
