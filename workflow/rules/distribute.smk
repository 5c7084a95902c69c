# Schedules of a network -> a run with a process for each device, which a launcher starts as ranks on one node or
# several; needs the machine for itself.
rule distribute:
    input:
        graph="<results>/{model}/graph.json",
        weights="<results>/{model}/weights.safetensors",
        program=program,
        schedules=[
            f"<results>/{{model}}/schedules/{name}.json"
            for name in rank_launchers.names(settings)
        ],
    output:
        "<results>/{model}/distributed/run.json",
    log:
        "<logs>/distribute/{model}.log",
    benchmark:
        "<benchmarks>/distribute/{model}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: rank_cores
    resources:
        **rank_launchers.resources(settings),
        mem_mb=more(4000, 6),
        runtime=more(60),
        gpu=RANK_GPUS,
    params:
        launch=rank_launchers.launch(settings),
        platform=settings.platform,
        transport=rank_launchers.transport(settings),
        options=lambda w: configuration.distribute_options(settings, w.model),
        seed=settings.seed,
        versions=lambda w: versions(*runtime_packages(w.model), *RANK_PACKAGES),
        code=source_hash("distribute", platform=settings.platform),
    message:
        "Executing schedules of {wildcards.model} over ranks"
    shell:
        "{params.launch} distribute {input.graph:q} {input.weights:q} {input.schedules:q}"
        " --platform {params.platform} --transport {params.transport} --program {input.program:q}"
        " {params.options} --seed {params.seed} --output {output:q}"
        " 2>&1 | tee {log:q}"
