# All schedules of IOS with tighter and wider pruning in one session (IOS, figure 9).
rule pruning:
    input:
        graph="<results>/{model}/graph.json",
        weights="<results>/{model}/weights.safetensors",
        program=program,
        schedules=expand(
            "<results>/study/pruning/{model}/schedules/r{r}-s{s}.json",
            r=settings.study.pruning.r,
            s=settings.study.pruning.s,
            allow_missing=True,
        ),
    output:
        run="<results>/study/pruning/{model}/run.json",
    log:
        "<logs>/study/pruning/{model}.log",
    benchmark:
        "<benchmarks>/study/pruning/{model}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: all_cores
    resources:
        mem_mb=more(4000, 6),
        runtime=more(60),
        gpu=GPUS,
    params:
        platform=settings.platform,
        options=lambda w: configuration.execute_options(EVERYTHING, w.model),
        seed=settings.seed,
        versions=lambda w: versions(*runtime_packages(w.model)),
        code=source_hash("execute", platform=settings.platform),
    message:
        "Executing the schedules of {wildcards.model} by pruning"
    shell:
        "python -m hios execute {input.graph:q} {input.weights:q} {input.schedules:q}"
        " --platform {params.platform} --devices 1 --program {input.program:q}"
        " {params.options} --seed {params.seed} --output {output.run:q}"
        " 2>&1 | tee {log:q}"
