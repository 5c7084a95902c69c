# IOS with tighter and wider pruning on the costs of a network (IOS, figure 9).
rule pruned_schedule:
    input:
        graph="<results>/{model}/graph.json",
        costs="<results>/{model}/costs.json",
    output:
        "<results>/study/pruning/{model}/schedules/r{r}-s{s}.json",
    log:
        "<logs>/study/pruning/{model}/r{r}-s{s}.log",
    benchmark:
        "<benchmarks>/study/pruning/{model}/r{r}-s{s}.tsv"
    conda:
        "../../envs/schedule.yaml"
    threads: 1
    resources:
        mem_mb=more(2000, 100),
        runtime=more(60),
    params:
        versions=versions("numba", "ortools"),
        code=source_hash("schedule", ["ios"]),
    message:
        "Scheduling {wildcards.model} with ios, r {wildcards.r} and s {wildcards.s}"
    shell:
        "python -m hios schedule {input.graph:q} {input.costs:q} --algorithm ios"
        " --r {wildcards.r} --s {wildcards.s} --output {output:q}"
        " > {log:q} 2>&1"
