# Convolutions alone on two cores: at once, one after the other, handed over; needs the machine for itself.
rule convolutions:
    output:
        "<results>/study/convolutions.json",
    log:
        "<logs>/study/convolutions.log",
    benchmark:
        "<benchmarks>/study/convolutions.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: all_cores
    resources:
        mem_mb=6000,
        runtime=30,
    params:
        options=configuration.options(
            {
                "size": convolution_sizes(settings.study),
                "channels": settings.study.convolutions.channels,
                "repeats": settings.study.convolutions.repeats,
            }
        ),
        versions=versions("torch"),
        code=source_hash("convolutions", platform="cpu"),
    message:
        "Measuring convolutions alone"
    shell:
        "python -m hios study convolutions {params.options} --output {output:q}"
        " > {log:q} 2>&1"
