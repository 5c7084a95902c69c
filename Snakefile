# The pipeline: export, extract, profile, schedule, execute, report; one file a stage in workflow/rules.
#
#   snakemake --cores all                          everything that config.yaml asks for
#   snakemake --cores all figures                  the figures and tables of the papers, on results/papers.html
#   snakemake --cores all archive                  all of it as one file, results/archive.zip
#   snakemake -n                                   what would run, and why
#   snakemake --cores all --configfile other.yaml  another configuration in place of config.yaml
from snakemake.utils import min_version

min_version("9.27")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"


# Before the first job, when Snakemake knows its executor. It would print what is raised here with a traceback.
onstart:
    if AUTO and on_cluster():
        sys.exit(f"Error: {AUTO_ON_CLUSTER}")


rule all:
    input:
        "<results>/report.html",
        expand(RESULTS, model=settings.models, allow_missing=True),
        expand(CHOSEN.values(), model=settings.models, allow_missing=True),
        expand(DISTRIBUTED, model=settings.models, allow_missing=True),
        "<results>/tables/latency.csv",
        "<results>/tables/operators.csv",
        "<results>/config.yaml",
        "<results>/versions.json",


include: "workflow/rules/export.smk"
include: "workflow/rules/extract.smk"


if configuration.divides(settings):

    include: "workflow/rules/partition.smk"


include: "workflow/rules/profile.smk"
include: "workflow/rules/schedule.smk"


if not PREDICTED:

    include: "workflow/rules/execute.smk"


if DISTRIBUTED:

    include: "workflow/rules/distribute.smk"


include: "workflow/rules/scenario.smk"
include: "workflow/rules/serve.smk"
include: "workflow/rules/simulation.smk"
include: "workflow/rules/ablation.smk"
include: "workflow/rules/convolutions.smk"
include: "workflow/rules/predict.smk"
include: "workflow/rules/top_study.smk"


if not PREDICTED:

    include: "workflow/rules/pruned_schedule.smk"
    include: "workflow/rules/pruning.smk"
    include: "workflow/rules/retarget.smk"
    include: "workflow/rules/profile_alone.smk"


include: "workflow/rules/machine_archive.smk"
include: "workflow/rules/figure.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/provenance.smk"
include: "workflow/rules/archive.smk"


# All figures of the papers, on the page that the report links to: papers.html. It has no output of its own, since the
# report writes that page of the figures that its sessions feed.
rule figures:
    input:
        expand("<results>/figures/{figure}.svg", figure=registry.ids()),
        report="<results>/report.html",
    log:
        "<logs>/figures.log",
    localrule: True
    conda:
        "envs/report.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        results=subpath(input.report, parent=True),
    message:
        "Writing the page of all figures"
    shell:
        "python -m hios figures --page --results {params.results:q} 2> {log:q}"


# A target for each figure of the papers: snakemake --cores all hios_fig9.
for figure_id in registry.ids():

    rule:
        name:
            figure_id
        input:
            f"{settings.results}/figures/{figure_id}.svg",


# Snakemake refuses benchmarks of rules that may be taken from the cache, since nothing would fill them in.
if CACHING:
    for eligible in ("export", "export_onnx", "extract"):
        workflow.get_rule(eligible)._benchmark = None
