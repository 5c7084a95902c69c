# Graph -> schedules on the GPUs of the papers, as the platform model predicts them; nothing runs.
rule predict:
    input:
        "<results>/{model}/graph.json",
    output:
        "<results>/{model}/predicted.json",
    log:
        "<logs>/predict/{model}.log",
    benchmark:
        "<benchmarks>/predict/{model}.tsv"
    conda:
        "../../envs/schedule.yaml"
    threads: 1
    resources:
        mem_mb=more(2000, 100),
        runtime=more(30),
    params:
        targets=lambda w: configuration.options({"for": targets_of(w.model)}),
        versions=versions("numba", "ortools"),
        code=source_hash("predict_targets", PREDICTED_ALGORITHMS, platform="model"),
    message:
        "Predicting {wildcards.model} on the GPUs of the papers"
    shell:
        "python -m hios study predict {input:q} {params.targets} --output {output:q}"
        " > {log:q} 2>&1"
