# Every algorithm on random graphs of HIOS's simulation; the results do not depend on the machine. A rule for all settings
# of the same graphs, which share the search of IOS.
for graphs, sharing in SETTINGS_BY_GRAPHS.items():

    rule:
        name:
            f"simulation_{graphs.replace('-', '_')}"
        output:
            [f"<results>/study/simulation/{setting.name}.json" for setting in sharing],
        log:
            f"<logs>/study/simulation/{graphs}.log",
        benchmark:
            f"<benchmarks>/study/simulation/{graphs}.tsv"
        conda:
            "../../envs/schedule.yaml"
        threads: 1
        resources:
            mem_mb=2000,
            runtime=60,
        params:
            folder=subpath(output[0], parent=True),
            settings=several_settings(sharing),
            versions=versions("numba", "ortools"),
            code=source_hash("simulation", SIMULATED),
        message:
            f"Simulating {', '.join(setting.name for setting in sharing)}"
        shell:
            "python -m hios study simulation {params.settings} --output {params.folder:q}"
            " > {log:q} 2>&1"
