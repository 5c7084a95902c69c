# What the results rest on: the resolved configuration and the versions of the software.

# By way of the environment, since Snakemake prints commands: a page of YAML in one of them would bury the rest.
os.environ["HIOS_CONFIG"] = configuration.as_yaml(settings)


envvars:
    "HIOS_CONFIG",


rule provenance:
    output:
        config=report(
            "<results>/config.yaml",
            caption="../report/config.rst",
            category="Provenance",
            labels={"what": "configuration, resolved"},
        ),
        versions=report(
            "<results>/versions.json",
            caption="../report/versions.rst",
            category="Provenance",
            labels={"what": "software versions"},
        ),
    log:
        "<logs>/provenance.log",
    benchmark:
        "<benchmarks>/provenance.tsv"
    localrule: True
    conda:
        # of all environments the one with torch and TVM
        "../../envs/tvm.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        config=configuration.as_yaml(settings),
        versions=versions(*PACKAGES),
        code=source_hash("provenance"),
    message:
        "Writing down configuration and software versions"
    shell:
        '(printf %s "$HIOS_CONFIG" > {output.config:q}'
        " && python -m hios versions --output {output.versions:q})"
        " > {log:q} 2>&1"
