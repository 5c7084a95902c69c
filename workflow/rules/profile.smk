# Graph -> costs, measured on the platform, which needs the machine for itself, or predicted (platform model).
rule profile:
    input:
        **PARTITION,
        graph="<results>/{model}/graph.json",
        descriptions=[os.path.relpath(file) for file in DESCRIPTIONS],
    output:
        "<results>/{model}/costs.json",
    log:
        "<logs>/profile/{model}.log",
    benchmark:
        "<benchmarks>/profile/{model}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: 1 if PREDICTED else all_cores
    resources:
        mem_mb=more(4000),
        runtime=more(60),
        gpu=GPUS,
    params:
        platform=settings.platform,
        devices=lambda w, input: configuration.options(
            {"partition": input.partition} if AUTO else {"devices": MOST_DEVICES}
        ),
        options=configuration.profile_options(settings),
        versions=versions("torch"),
        code=(
            source_hash("predict", platform=settings.platform)
            if PREDICTED
            else source_hash(
                "profile", settings.profile.stages_of, platform=settings.platform
            )
        ),
        doing="Predicting" if PREDICTED else "Measuring",
    message:
        "{params.doing} the operators, stages and transfers of {wildcards.model}"
    shell:
        "python -m hios profile {input.graph:q} --platform {params.platform} {params.devices}"
        " {params.options} --output {output:q}"
        " 2>&1 | tee {log:q}"
