# What each deviation of the program that HIOS's authors released changes, on graphs of either generator.
rule ablation:
    output:
        "<results>/study/ablation/{generator}.json",
    log:
        "<logs>/study/ablation/{generator}.log",
    benchmark:
        "<benchmarks>/study/ablation/{generator}.tsv"
    conda:
        "../../envs/schedule.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        setting=setting_options(BASE_SETTING),
        versions=versions(),
        code=source_hash("simulation", SIMULATED),
    message:
        "Trying the deviations of HIOS's released program on graphs of {wildcards.generator}"
    shell:
        "python -m hios study ablation --generator {wildcards.generator} {params.setting} --output {output:q}"
        " > {log:q} 2>&1"
