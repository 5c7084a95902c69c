# Program of torch.export or ONNX -> graph of scheduling units and weights, through TVM Relax.
rule extract:
    input:
        program,
    output:
        graph="<results>/{model}/graph.json",
        weights="<results>/{model}/weights.safetensors",
    log:
        "<logs>/extract/{model}.log",
    benchmark:
        "<benchmarks>/extract/{model}.tsv"
    cache: CACHING
    conda:
        "../../envs/tvm.yaml"
    threads: 1
    resources:
        mem_mb=more(4000, 6),
        runtime=more(15),
    params:
        name=lambda w: os.path.basename(w.model),
        options=lambda w: configuration.extract_options(NETWORKS[w.model]),
        versions=lambda w: versions(
            "torch", "apache-tvm", "apache-tvm-ffi", *onnx_packages(w.model)
        ),
        code=source_hash("extract"),
    message:
        "Extracting the graph of {wildcards.model}"
    shell:
        "python -m hios extract {input:q} --output {output.graph:q} --weights {output.weights:q}"
        " --name {params.name:q} {params.options}"
        " > {log:q} 2>&1"
