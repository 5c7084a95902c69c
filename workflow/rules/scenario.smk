# The configuration -> the scenario of all its networks, where it names no scenario of its own.

# By way of the environment, as commands are printed.
os.environ["HIOS_SCENARIO"] = serving_jobs.networks_yaml(settings)


envvars:
    "HIOS_SCENARIO",


rule scenario:
    output:
        f"<results>/serving/{serving_jobs.NETWORKS}/scenario.yaml",
    log:
        "<logs>/serving/scenario.log",
    benchmark:
        "<benchmarks>/serving/scenario.tsv"
    localrule: True
    conda:
        "../../envs/schedule.yaml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        scenario=serving_jobs.networks_yaml(settings),
    message:
        "Writing the scenario of all networks"
    shell:
        '(printf %s "$HIOS_SCENARIO" > {output:q})'
        " > {log:q} 2>&1"
