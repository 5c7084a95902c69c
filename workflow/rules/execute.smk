# All schedules of a network -> measured runs, interleaved in one session; needs the machine for itself.
rule execute:
    input:
        graph="<results>/{model}/graph.json",
        weights="<results>/{model}/weights.safetensors",
        program=program,
        schedules=schedules_of,
    output:
        **CHOSEN,
        run="<results>/{model}/run.json",
        # a folder: with a trace more among its outputs, Snakemake would no longer notice that a rule is out of date
        traces=directory("<results>/{model}/traces"),
    log:
        "<logs>/execute/{model}.log",
    benchmark:
        "<benchmarks>/execute/{model}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: all_cores
    resources:
        mem_mb=more(4000, 6),
        runtime=more(60),
        gpu=GPUS,
    params:
        platform=settings.platform,
        devices=configuration.options({} if AUTO else {"devices": MOST_DEVICES}),
        options=lambda w: configuration.execute_options(EVERYTHING, w.model),
        auto=lambda w, output: configuration.options(
            {"auto": output.chosen} if CHOSEN else {}
        ),
        seed=settings.seed,
        versions=lambda w: versions(*runtime_packages(w.model)),
        code=source_hash("execute", platform=settings.platform),
    message:
        "Executing the schedules of {wildcards.model}"
    shell:
        "python -m hios execute {input.graph:q} {input.weights:q} {input.schedules:q}"
        " --platform {params.platform} {params.devices} --program {input.program:q}"
        " {params.options} {params.auto} --seed {params.seed} --output {output.run:q} --traces {output.traces:q}"
        " 2>&1 | tee {log:q}"
