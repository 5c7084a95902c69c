# An archive of another machine, kept with the results, so that figures of several machines can be drawn and checked again.
rule machine_archive:
    input:
        lambda w: ARCHIVES[w.machine],
    output:
        "<results>/study/archives/{machine}.zip",
    log:
        "<logs>/study/archives/{machine}.log",
    benchmark:
        "<benchmarks>/study/archives/{machine}.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        folder=subpath(output[0], parent=True),
    message:
        "Copying the archive of {wildcards.machine}"
    shell:
        "(mkdir -p {params.folder:q} && cp {input:q} {output:q}) > {log:q} 2>&1"
