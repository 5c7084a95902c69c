# Figures and tables of the papers: sessions that only they need, one rule that draws any of them, a target for each.
#
#   snakemake --cores all hios_fig9   one figure, with what it is drawn from
#   snakemake --cores all figures     all of them
wildcard_constraints:
    setting=alternatives(SETTINGS),
    generator=alternatives(GENERATORS),
    figure=alternatives(registry.ids()),


# Every algorithm on random graphs of one setting of HIOS's simulation; its result does not depend on the machine.
rule simulation:
    output:
        "<results>/study/simulation/{setting}.json",
    log:
        "<logs>/study/simulation/{setting}.log",
    benchmark:
        "<benchmarks>/study/simulation/{setting}.tsv"
    conda:
        "../../envs/schedule.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        setting=lambda w: setting_options(SETTINGS[w.setting]),
        search=configuration.options(
            {"window": SIMULATION.window, "moves": SIMULATION.moves}
        ),
        versions=versions("numba", "ortools"),
        code=source_hash("simulation", SIMULATED),
    message:
        "Simulating {wildcards.setting}"
    shell:
        "python -m hios study simulation {params.setting} {params.search} --output {output:q}"
        " > {log:q} 2>&1"


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


# Data of sessions -> one figure or table, whatever it is; an edit of its file draws that one again, and measures nothing.
rule figure:
    input:
        figure_data,
    output:
        multiext("<results>/figures/{figure}", ".csv", ".tex", ".pdf", ".json"),
        svg=report(
            "<results>/figures/{figure}.svg",
            caption="../report/figure.rst",
            category="Figures of the papers",
            subcategory=lambda w: registry.figure(w.figure).paper,
            labels=lambda w: {
                "figure": registry.figure(w.figure).number,
                "what": registry.figure(w.figure).title,
            },
        ),
    log:
        "<logs>/figures/{figure}.log",
    benchmark:
        "<benchmarks>/figures/{figure}.tsv"
    localrule: True
    conda:
        "../../envs/report.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        folder=subpath(output.svg, parent=True),
        about=lambda w: f"{registry.figure(w.figure).title}: {registry.figure(w.figure).varies}.",
        versions=versions("altair", "vl-convert-python", "pandas"),
        code=lambda w: code_hash(
            [registry.module_of(w.figure), "hios.study.figure_files"]
        ),
    message:
        "Drawing {wildcards.figure}"
    shell:
        "python -m hios figures {wildcards.figure} {input:q} --output {params.folder:q}"
        " > {log:q} 2>&1"


rule figures:
    input:
        expand("<results>/figures/{figure}.svg", figure=registry.ids()),


for figure_id in registry.ids():

    rule:
        name:
            figure_id
        input:
            f"{settings.results}/figures/{figure_id}.svg",
