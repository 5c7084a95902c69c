"""Makes the archives of docs/gallery: ``python docs/generate_gallery.py NAME``, in the environment of hios.

Each runs the pipeline with examples/gallery/NAME.yaml, on this machine, and packs what it wrote with ``hios archive``.
They differ each time: what a machine measures is its own. docs/conf.py makes their pages again for the site.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATIONS = Path("examples") / "gallery"
NAMES = ("networks", "gpus", "serving", "cluster")
#: A Slurm of one node on this machine; on a cluster, the same without it.
_SLURM = (sys.executable, "tests/workflow/slurm_cluster.py")
_ON_SLURM = ("--workflow-profile", "workflow/profiles/slurm", "--latency-wait", "5", "--cores", "2")


def run(*words: str) -> None:
    """Run a command in the repository; one that fails ends this program."""
    print("$", *words, flush=True)
    if code := subprocess.run(words, check=False, cwd=ROOT).returncode:
        sys.exit(code)


def pipeline(name: str, *config: str) -> None:
    """The pipeline with the configuration of an archive."""
    words = ["snakemake", "--configfile", f"{CONFIGURATIONS}/{name}.yaml", *(["--config", *config] if config else [])]
    run(*(_SLURM if name == "cluster" else ()), *words, *(_ON_SLURM if name == "cluster" else ("--cores", "all")))


def make(name: str) -> None:
    """Make an archive anew."""
    folder = f"results-gallery/{name}"
    pipeline(name)
    if name == "gpus":  # one page of two runs
        pipeline(name, "gpu=h100-sxm", f"results={folder}/h100")
        models = [str(costs.parent.relative_to(ROOT)) for costs in sorted((ROOT / folder).glob("*/*/costs.json"))]
        run("hios", "report", *models, "--output", f"{folder}/report.html", "--tables", f"{folder}/tables")
    run("hios", "archive", f"{folder}/report.html", "--output", f"docs/gallery/{name}.zip")


if __name__ == "__main__":
    if not sys.argv[1:] or not set(sys.argv[1:]) <= set(NAMES):
        sys.exit(f"usage: python docs/generate_gallery.py NAME ...; allowed: {', '.join(NAMES)}")
    for named in sys.argv[1:]:
        make(named)
