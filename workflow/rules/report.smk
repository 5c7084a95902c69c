# Graphs, costs and runs (or predicted schedules) of all networks -> one page, and its tables as CSV and LaTeX.
rule report:
    input:
        graphs=expand("<results>/{model}/graph.json", model=settings.models),
        costs=expand("<results>/{model}/costs.json", model=settings.models),
        runs=expand(RESULTS, model=settings.models, allow_missing=True),
        config="<results>/config.yaml",
    output:
        page=report(
            "<results>/report.html",
            caption="../report/report.rst",
            category="Report",
            labels={"what": "all networks and algorithms"},
        ),
        latency=report(
            "<results>/tables/latency.csv",
            caption="../report/latency.rst",
            category="Tables",
            labels={"what": "latency of every schedule"},
        ),
        operators=report(
            "<results>/tables/operators.csv",
            caption="../report/operators.rst",
            category="Tables",
            labels={"what": "cost of every operator"},
        ),
        latex=["<results>/tables/latency.tex", "<results>/tables/operators.tex"],
    log:
        "<logs>/report.log",
    benchmark:
        "<benchmarks>/report.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        directories=[f"{settings.results}/{model}" for model in settings.models],
        tables=subpath(output.latency, parent=True),
        schedules=configuration.options({"schedule": COMPETITORS if PREDICTED else []}),
        versions=versions("altair", "vl-convert-python"),
        code=source_hash("report"),
    message:
        "Writing the report"
    shell:
        "python -m hios report {params.directories:q} --output {output.page:q} --tables {params.tables:q}"
        " --config {input.config:q} {params.schedules}"
        " > {log:q} 2>&1"
