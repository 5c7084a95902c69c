# With `devices: auto`: graph and weights -> which division of the machine's cores into devices is fastest, measured.
rule partition:
    input:
        graph="<results>/{model}/graph.json",
        weights="<results>/{model}/weights.safetensors",
    output:
        "<results>/{model}/partition.json",
    log:
        "<logs>/partition/{model}.log",
    benchmark:
        "<benchmarks>/partition/{model}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: all_cores
    resources:
        mem_mb=more(4000, 6),
        runtime=more(60),
    params:
        options=configuration.partition_options(settings),
        versions=versions("torch"),
        code=source_hash("partition", ["hios-lp"], platform=settings.platform),
    message:
        "Dividing the cores among devices for {wildcards.model}"
    shell:
        "python -m hios partition {input.graph:q} {input.weights:q} {params.options} --output {output:q}"
        " 2>&1 | tee {log:q}"
