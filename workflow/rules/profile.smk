# Graph -> costs, measured on the platform; needs the machine for itself.
rule profile:
    input:
        "<results>/{model}/graph.json",
    output:
        "<results>/{model}/costs.json",
    log:
        "<logs>/profile/{model}.log",
    benchmark:
        "<benchmarks>/profile/{model}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: ALL_CORES
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        platform=settings["platform"],
        devices=max(settings["devices"]),
        options=configuration.profile_options(settings),
        versions=versions("torch"),
        code=source_hash(
            "profile",
            settings["profile"]["stages_of"],
            platform=settings["platform"],
        ),
    message:
        "Measuring the operators, stages and transfers of {wildcards.model}"
    shell:
        "python -m hios profile {input:q} --platform {params.platform} --devices {params.devices}"
        " {params.options} --output {output:q}"
        " 2>&1 | tee {log:q}"
