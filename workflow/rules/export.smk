# PyTorch model -> torch.export program.
rule export:
    input:
        model_file,
    output:
        "<results>/{model}/program.pt2",
    log:
        "<logs>/export/{model}.log",
    benchmark:
        "<benchmarks>/export/{model}.tsv"
    cache: CACHING
    conda:
        "../../envs/torch.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=15,
    params:
        model=lambda w: settings["models"][w.model]["model"],
        options=lambda w: configuration.options(
            settings["models"][w.model], without="model"
        ),
        seed=settings["seed"],
        versions=versions("torch"),
        code=source_hash("export"),
    message:
        "Exporting {wildcards.model}"
    shell:
        "python -m hios export {params.model:q} --output {output:q} {params.options} --seed {params.seed}"
        " > {log:q} 2>&1"
