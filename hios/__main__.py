"""``python -m hios`` is ``hios``."""

from hios.cli import main

if __name__ == "__main__":
    main()
