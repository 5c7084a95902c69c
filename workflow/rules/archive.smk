# Everything that the page rests on in one file, with a hash of every file; `hios report ARCHIVE` makes the page again.
rule archive:
    input:
        rules.all.input,
        page="<results>/report.html",
    output:
        "<results>/archive.zip",
    log:
        "<logs>/archive.log",
    benchmark:
        "<benchmarks>/archive.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        code=code_hash(["hios.report.archive"]),
    message:
        "Packing the results"
    shell:
        "python -m hios archive {input.page:q} --output {output:q} > {log:q} 2>&1"
