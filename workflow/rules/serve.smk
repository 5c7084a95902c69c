# Scenario, graphs and costs -> what becomes of the tasks of several models on one device under a policy: simulated, or
# run for real, which needs the machine for itself. Where scenarios also run, the simulator is calibrated first; for
# learned policies, a launcher is trained first.
rule serve:
    input:
        **SCENARIO,
        more=lambda w: list(served_with(serving_jobs.simulate_options, w).values()),
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
        options=lambda w: configuration.options(
            served_with(serving_jobs.simulate_options, w)
        ),
        versions=versions("numba"),
        code=source_hash("serve", serving_jobs.ALGORITHMS),
    message:
        "Simulating {wildcards.scenario} under {wildcards.policy}, load {wildcards.load}"
    shell:
        "python -m hios {params.command} {input.scenario:q} --policy {wildcards.policy} --load {wildcards.load}"
        " {params.options} --output {output:q}"
        " > {log:q} 2>&1"


use rule serve as serve_measured with:
    input:
        **SCENARIO,
        more=lambda w: list(served_with(serving_jobs.load_options, w).values()),
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
        options=lambda w: configuration.options(
            {
                "virtual": settings.virtual,
                "trust": serving_jobs.trusted(settings, w.scenario),
                **served_with(serving_jobs.load_options, w),
            }
        ),
        versions=versions("torch", "numba", "onnxruntime", "openvino"),
        code=source_hash("load", serving_jobs.ALGORITHMS),
    message:
        "Running {wildcards.scenario} under {wildcards.policy}, load {wildcards.load}"


rule serve_calibrate:
    input:
        **SCENARIO,
    output:
        "<results>/serving/{scenario}/calibration.json",
    log:
        "<logs>/serving/{scenario}/calibration.log",
    benchmark:
        "<benchmarks>/serving/{scenario}/calibration.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: all_cores
    resources:
        mem_mb=more(4000),
        runtime=more(20),
    params:
        options=configuration.options({"virtual": settings.virtual}),
        versions=versions("torch"),
        code=source_hash("calibrate", serving_jobs.ALGORITHMS),
    message:
        "Calibrating the simulation of {wildcards.scenario}"
    shell:
        "python -m hios load {input.scenario:q} --calibrate {params.options} --output {output:q}"
        " > {log:q} 2>&1"


rule serve_train:
    input:
        **SCENARIO,
        calibration=lambda w: list(
            serving_jobs.train_options(settings, w.scenario).values()
        ),
    output:
        "<results>/serving/{scenario}/launcher-{load}.safetensors",
    log:
        "<logs>/serving/{scenario}/launcher-{load}.log",
    benchmark:
        "<benchmarks>/serving/{scenario}/launcher-{load}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: 1
    resources:
        mem_mb=more(3000),
        runtime=more(90),
    params:
        options=lambda w: configuration.options(
            {
                "size": settings.serving.training,
                "seed": settings.seed,
                **serving_jobs.train_options(settings, w.scenario),
            }
        ),
        versions=versions("torch", "numba"),
        code=source_hash("train", serving_jobs.ALGORITHMS),
    message:
        "Training a launcher for {wildcards.scenario}, load {wildcards.load}"
    shell:
        "python -m hios train {input.scenario:q} --learn launcher --load {wildcards.load} {params.options}"
        " --output {output:q}"
        " > {log:q} 2>&1"
