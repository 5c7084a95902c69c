# Graphs, costs and runs (or predicted schedules) of all networks -> one page; figures of the papers -> another beside it;
# tables as files.
rule report:
    input:
        graphs=expand("<results>/{model}/graph.json", model=settings.models),
        costs=expand("<results>/{model}/costs.json", model=settings.models),
        runs=expand(RESULTS, model=settings.models, allow_missing=True),
        config="<results>/config.yaml",
        served=SERVED,
        figures=expand(
            "<results>/figures/{figure}.json", figure=PAGE_FIGURES, allow_missing=True
        ),
    output:
        page=report(
            "<results>/report.html",
            caption="../report/report.rst",
            category="Report",
            labels={"what": "all networks and algorithms"},
        ),
        papers=(
            report(
                "<results>/papers.html",
                caption="../report/papers.rst",
                category="Report",
                labels={"what": "figures and tables of the papers"},
            )
            if PAGE_FIGURES
            else []
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
        figures=configuration.options(
            {"figures": f"{settings.results}/figures", "figure": PAGE_FIGURES}
            if PAGE_FIGURES
            else {}
        ),
        serving=configuration.options(
            {
                "serving": f"{settings.results}/serving",
                "served": [
                    name.removeprefix(f"{settings.results}/serving/")
                    for name in SERVED
                ],
            }
            if SERVED
            else {}
        ),
        versions=versions("altair", "vl-convert-python"),
        code=source_hash("report"),
        registry=code_hash(map(registry.module_of, registry.ids())),
    message:
        "Writing the report"
    shell:
        "python -m hios report {params.directories:q} --output {output.page:q} --tables {params.tables:q}"
        " --config {input.config:q} {params.schedules} {params.figures} {params.serving}"
        " > {log:q} 2>&1"
