"""Instances that others published and that are not part of the project: where they are, and how to get them.

    python benchmarks/published_data.py

downloads the wirings of RandWire to benchmarks/data; benchmarks/data/README.md says what each set is and where it is
from. Tests and benchmarks look for a set in the folder that HIOS_DATA names, in benchmarks/data, and in shared/data
beside the repository, in this order.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import urllib.request
from pathlib import Path

from hios.files.artifacts import replacing

_REPOSITORY = Path(__file__).resolve().parents[1]
FETCHED = _REPOSITORY / "benchmarks" / "data"
RANDWIRE_URL = (
    "https://raw.githubusercontent.com/mit-han-lab/inter-operator-scheduler/91963c06051c58c7b92e8ec57a5a98788b5f4c01/"
    "python/ios/models/randwire_graphs/generated/"
)
#: SHA-256 of each file of RandWire.
RANDWIRE_SHA256 = {
    "ws-16-4-0.75-2.txt": "92f0086568f483be90a0243b31991243bdd4862cc5888867905a62f8fc48236d",
    "ws-32-4-0.75-3.txt": "b1a2e55424ed5069d21c5f0b1407517e97fb8c48b57f013035268b16fe16de09",
    "ws-32-4-0.75-4.txt": "197b94546892b8e5df8b9063d36a2e32415e061392bf2324b7ae7d6b6f5fb2b4",
    "ws-32-4-0.75-5.txt": "8b23bb21d232da563ea7ce5d8b6f6363d2b1beeddadcda7ad86bd407d8b0f9cd",
}
#: What to do where a set is missing.
HOW_TO_GET = {
    "randwire": "`make data` downloads it",
    "stg": "benchmarks/data/README.md says where it is published and how to arrange its files",
}


def data_folder(name: str) -> Path:
    """The folder of a set of instances: ``randwire`` or ``stg``.

    Raises:
        FileNotFoundError: the set is in none of the places; the message says how to get it.
    """
    named = os.environ.get("HIOS_DATA")
    places = [Path(named)] if named else [FETCHED, _REPOSITORY.parent / "shared" / "data"]
    for place in places:
        if (place / name).is_dir():
            return place / name
    looked = " or ".join(str(place) for place in places)
    raise FileNotFoundError(f"published data {name!r} not found in {looked}: {HOW_TO_GET[name]}")


def fetch_randwire(folder: Path, url: str = RANDWIRE_URL) -> None:
    """Download the wirings of RandWire to ``folder``; all files, or none where one fails or differs.

    Raises:
        OSError: a file cannot be downloaded or written.
        ValueError: a file is not the one that the results were published for.
    """
    contents = {}
    for name, expected in RANDWIRE_SHA256.items():
        try:
            with urllib.request.urlopen(url + name, timeout=60) as response:  # noqa: S310 - not a user's address
                contents[name] = response.read()
        except OSError as error:
            raise OSError(f"{url}{name}: not downloaded: {error}") from error
        actual = hashlib.sha256(contents[name]).hexdigest()
        if actual != expected:
            raise ValueError(f"{url}{name}: SHA-256 is {actual}, expected {expected}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        with replacing(folder / name) as file:
            file.write_bytes(content)


def main() -> None:
    """Download what can be downloaded, and say what cannot."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    try:
        fetch_randwire(FETCHED / "randwire")
    except (OSError, ValueError) as error:
        sys.exit(f"published_data: {error}")
    print(f"randwire: {FETCHED / 'randwire'}")
    print(f"stg: not downloaded; {HOW_TO_GET['stg']}")


if __name__ == "__main__":
    main()
