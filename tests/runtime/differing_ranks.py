"""hios as a rank of a launcher, with one word of the command line another on rank 1: ``... FROM TO [ARGUMENTS]``."""

from __future__ import annotations

import os
import sys

from hios.cli import main

if __name__ == "__main__":
    before, after, *arguments = sys.argv[1:]
    rank = os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK"))
    sys.argv[1:] = [after if word == before and rank == "1" else word for word in arguments]
    main()
