# Model -> program: a network of models/ or of the user's through torch.export, a finished .pt2 or .onnx checked.
rule export:
    input:
        model_files,
    output:
        "<results>/{model}/program.pt2",
    log:
        "<logs>/export/{model}.log",
    benchmark:
        "<benchmarks>/export/{model}.tsv"
    wildcard_constraints:
        model=alternatives(TORCH),
    cache: CACHING
    conda:
        "../../envs/torch.yaml"
    threads: 1
    resources:
        mem_mb=more(4000, 6),
        runtime=more(15),
    params:
        model=lambda w: NETWORKS[w.model].model,
        options=lambda w: configuration.export_options(NETWORKS[w.model]),
        seed=settings.seed,
        versions=lambda w: versions("torch", *onnx_packages(w.model)),
        code=source_hash("export"),
    message:
        "Exporting {wildcards.model}"
    shell:
        "python -m hios export {params.model:q} --output {output:q} {params.options} --seed {params.seed}"
        " > {log:q} 2>&1"


use rule export as export_onnx with:
    output:
        "<results>/{model}/program.onnx",
    wildcard_constraints:
        model=alternatives(ONNX),
