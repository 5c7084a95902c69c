# The environment of `make setup`, with the versions of constraints.txt, and the two commands of the README:
#   docker build --tag hios .
#   docker run --rm --volume "$PWD/results:/hios/results" hios report
#   docker run --rm hios test
# Measurements in a container are those of its cores: give it whole ones (--cpuset-cpus) and nothing beside it.
FROM python:3.11-slim-bookworm

# git: the report names the commit. g++: torch.compile. make: the commands.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /hios
# First what seldom changes, so that an edit of the code installs nothing again.
COPY pyproject.toml constraints.txt README.md LICENSE Makefile ./
COPY hios/__init__.py hios/__init__.py
COPY schemas schemas
COPY models models
RUN make setup

COPY . .
# The environment is that of the lines above, whatever the times of the files.
RUN touch .venv/installed

ENV PATH=/hios/.venv/bin:$PATH
ENTRYPOINT ["make"]
CMD ["report"]
