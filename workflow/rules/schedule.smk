# Graph and costs -> where and when each operator runs, by one algorithm for one number of devices.
rule schedule:
    input:
        **PARTITION,
        graph="<results>/{model}/graph.json",
        costs="<results>/{model}/costs.json",
    output:
        "<results>/{model}/schedules/{algorithm}-{devices}.json",
    log:
        "<logs>/schedule/{model}/{algorithm}-{devices}.log",
    benchmark:
        "<benchmarks>/schedule/{model}/{algorithm}-{devices}.tsv"
    conda:
        "../../envs/schedule.yaml"
    threads: lambda w: find(algorithm_of(w)["algorithm"]).threads
    resources:
        mem_mb=more(2000, 100),
        runtime=more(20),
    params:
        devices=lambda w, input: configuration.options(
            {"devices": w.devices}
            if w.devices != AUTO_DEVICES
            else {"partition": input.partition}
        ),
        algorithm=lambda w: algorithm_of(w)["algorithm"],
        options=lambda w: configuration.schedule_options(algorithm_of(w)),
        versions=versions("numba", "ortools"),
        code=lambda w: source_hash("schedule", [algorithm_of(w)["algorithm"]]),
    message:
        "Scheduling {wildcards.model} with {wildcards.algorithm} for {wildcards.devices} device(s)"
    shell:
        "python -m hios schedule {input.graph:q} {input.costs:q} --algorithm {params.algorithm:q}"
        " {params.devices} {params.options} --output {output:q}"
        " > {log:q} 2>&1"
