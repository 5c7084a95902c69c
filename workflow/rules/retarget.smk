# A schedule for one batch size taken to the same network with another (IOS, table 3).
rule retarget:
    input:
        schedule=f"<results>/study/batches/{{network}}-b{{other}}/schedules/{RETARGETED}-1.json",
        own="<results>/study/batches/{network}-b{other}/graph.json",
        graph="<results>/study/batches/{network}-b{size}/graph.json",
        costs="<results>/study/batches/{network}-b{size}/costs.json",
    output:
        f"<results>/study/batches/{{network}}-b{{size}}/retargeted/{RETARGETED}-for-b{{other}}.json",
    log:
        "<logs>/study/batches/{network}-b{size}-for-b{other}.log",
    benchmark:
        "<benchmarks>/study/batches/{network}-b{size}-for-b{other}.tsv"
    wildcard_constraints:
        network=r"\w+",
        size=r"\d+",
        other=r"\d+",
    conda:
        "../../envs/schedule.yaml"
    threads: 1
    resources:
        mem_mb=more(2000, 100),
        runtime=10,
    params:
        code=code_hash(["hios.core.retarget"]),
    message:
        "Taking the schedule of {wildcards.network} for batch {wildcards.other} to batch {wildcards.size}"
    shell:
        "python -m hios retarget {input.schedule:q} {input.own:q} {input.graph:q} {input.costs:q}"
        " --output {output:q} > {log:q} 2>&1"
