# A network profiled for one algorithm alone, without cache and budget, and scheduled by it (HIOS, figure 14).
rule profile_alone:
    input:
        **{
            name: path.format(model="study/images/{network}")
            for name, path in PARTITION.items()
        },
        graph="<results>/study/images/{network}/graph.json",
    output:
        graph="<results>/study/profiles/{network}/{algorithm}/graph.json",
        costs="<results>/study/profiles/{network}/{algorithm}/costs.json",
        schedule="<results>/study/profiles/{network}/{algorithm}/schedule.json",
    log:
        "<logs>/study/profiles/{network}/{algorithm}.log",
    benchmark:
        "<benchmarks>/study/profiles/{network}/{algorithm}.tsv"
    wildcard_constraints:
        network=r"[^/]+",
    conda:
        "../../envs/torch.yaml"
    threads: all_cores
    resources:
        mem_mb=more(4000),
        runtime=more(300),
        gpu=GPUS,
    params:
        platform=settings.platform,
        devices=lambda w, input: configuration.options(
            {"partition": input.partition}
            if AUTO
            else {"devices": MOST_DEVICES if find(w.algorithm).several_devices else 1}
        ),
        devices_of_schedule=lambda w, input: configuration.options(
            {"partition": input.partition}
            if AUTO and find(w.algorithm).several_devices
            else {"devices": MOST_DEVICES if find(w.algorithm).several_devices else 1}
        ),
        options=lambda w: configuration.alone_options(settings, w.algorithm),
        versions=versions("torch", "numba"),
        profile=lambda w: source_hash(
            "profile", [w.algorithm], platform=settings.platform
        ),
        schedule=lambda w: source_hash("schedule", [w.algorithm]),
    message:
        "Profiling {wildcards.network} for {wildcards.algorithm} alone"
    shell:
        "{{ cp {input.graph:q} {output.graph:q}"
        " && python -m hios profile {output.graph:q} --platform {params.platform} {params.devices}"
        " {params.options} --output {output.costs:q}"
        " && python -m hios schedule {output.graph:q} {output.costs:q} --algorithm {wildcards.algorithm:q}"
        " {params.devices_of_schedule} --output {output.schedule:q}; }}"
        " 2>&1 | tee {log:q}"
