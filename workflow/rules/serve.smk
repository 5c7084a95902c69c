# Scenario, graphs and costs -> what becomes of the tasks of several models on one device under a policy: simulated, or
# run for real, which needs the machine for itself.
rule serve:
    input:
        scenario=lambda w: serving_jobs.scenario_file(settings, w.scenario),
        files=lambda w: checked(serving_jobs.files_of, settings, w.scenario),
    output:
        "<results>/serving/{scenario}/simulated/{policy}-{load}.json",
    log:
        "<logs>/serving/{scenario}/simulated/{policy}-{load}.log",
    benchmark:
        "<benchmarks>/serving/{scenario}/simulated/{policy}-{load}.tsv"
    conda:
        "../../envs/schedule.yaml"
    threads: 1
    resources:
        mem_mb=more(2000),
        runtime=more(20),
    params:
        command="simulate",
        options="",
        versions=versions("numba"),
        code=source_hash("serve", serving_jobs.ALGORITHMS),
    message:
        "Simulating {wildcards.scenario} under {wildcards.policy}, load {wildcards.load}"
    shell:
        "python -m hios {params.command} {input.scenario:q} --policy {wildcards.policy} --load {wildcards.load}"
        " {params.options} --output {output:q}"
        " > {log:q} 2>&1"


use rule serve as serve_measured with:
    output:
        "<results>/serving/{scenario}/measured/{policy}-{load}.json",
    log:
        "<logs>/serving/{scenario}/measured/{policy}-{load}.log",
    benchmark:
        "<benchmarks>/serving/{scenario}/measured/{policy}-{load}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: all_cores
    resources:
        mem_mb=more(4000),
        runtime=more(60),
    params:
        command="load",
        options=config_options.options({"virtual": settings.virtual}),
        versions=versions("torch", "numba"),
        code=source_hash("load", serving_jobs.ALGORITHMS),
    message:
        "Running {wildcards.scenario} under {wildcards.policy}, load {wildcards.load}"
