# Scenarios of several models -> an experiment of TOP on them, in the simulator: what one of its figures varies.
rule top_study:
    input:
        scenarios=[
            serving_jobs.scenario_file(settings, label)
            for label in serving_jobs.labels(settings)
        ],
        files=lambda w: [
            file
            for label in serving_jobs.labels(settings)
            for file in serving_jobs.files_of(settings, label)
        ],
        descriptions=[
            os.path.relpath(file) for file in configuration.top_files(settings)
        ],
    output:
        "<results>/study/top/{experiment}.json",
    log:
        "<logs>/study/top/{experiment}.log",
    benchmark:
        "<benchmarks>/study/top/{experiment}.tsv"
    wildcard_constraints:
        experiment=alternatives(get_args(Experiment)),
    conda:
        "../../envs/torch.yaml"
    threads: 1
    resources:
        mem_mb=more(3000),
        runtime=more(60),
    params:
        options=configuration.top_options(settings, serving_jobs.labels(settings)),
        versions=versions("numba", "torch"),
        code=source_hash("top", serving_jobs.ALGORITHMS),
    message:
        "TOP: {wildcards.experiment}"
    shell:
        "python -m hios study top {wildcards.experiment} {input.scenarios:q} {params.options} --output {output:q}"
        " > {log:q} 2>&1"
