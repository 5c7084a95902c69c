# Data of sessions -> one figure or table, whatever it is; an edit of its file draws that one again, and measures nothing.
rule figure:
    input:
        figure_data,
    output:
        multiext("<results>/figures/{figure}", ".csv", ".tex", ".pdf", ".json"),
        svg=report(
            "<results>/figures/{figure}.svg",
            caption="../report/figure.rst",
            category=lambda w: registry.figure(w.figure).paper,
            subcategory=lambda w: registry.figure(w.figure).section,
            labels=figure_labels,
        ),
    log:
        "<logs>/figures/{figure}.log",
    benchmark:
        "<benchmarks>/figures/{figure}.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        folder=subpath(output.svg, parent=True),
        about=lambda w: f"{registry.figure(w.figure).title}: {registry.figure(w.figure).varies}.",
        versions=versions("altair", "vl-convert-python", "pandas"),
        code=lambda w: code_hash(
            [registry.module_of(w.figure), "hios.study.figure_files"]
        ),
    message:
        "Drawing {wildcards.figure}"
    shell:
        "python -m hios figures {wildcards.figure} {input:q} --output {params.folder:q}"
        " > {log:q} 2>&1"
