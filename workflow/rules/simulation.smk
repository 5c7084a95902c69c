# Every algorithm on random graphs of one setting of HIOS's simulation; its result does not depend on the machine.
rule simulation:
    output:
        "<results>/study/simulation/{setting}.json",
    log:
        "<logs>/study/simulation/{setting}.log",
    benchmark:
        "<benchmarks>/study/simulation/{setting}.tsv"
    conda:
        "../../envs/schedule.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        setting=lambda w: setting_options(SETTINGS[w.setting]),
        search=configuration.options(
            {"window": SIMULATION.window, "moves": SIMULATION.moves}
        ),
        versions=versions("numba", "ortools"),
        code=source_hash("simulation", SIMULATED),
    message:
        "Simulating {wildcards.setting}"
    shell:
        "python -m hios study simulation {params.setting} {params.search} --output {output:q}"
        " > {log:q} 2>&1"
