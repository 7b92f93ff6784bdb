# From combined tables to statistics and figures. The analysis code is an input, so that editing it
# remakes its outputs without training.
# With -P the caller's folder hides no package: another project may have one of this name, too.
# These jobs take seconds: on a cluster they are one job together with `combine`. They are not
# retried: the same tables give the same error.


rule statistics:
    input:
        tables=tables_in(FOLDER),
        code=code_of(*COMPUTING),
    output:
        statistics_in(FOLDER),
    log:
        f"{FOLDER}/logs/statistics.log",
    retries: 0
    group:
        analysis_group
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        tables=constant(f"{FOLDER}/tables"),
        folder=constant(f"{FOLDER}/statistics"),
    message:
        "statistics of {params.folder}"
    shell:
        "python -P -m analysis statistics {params.tables:q} {params.folder:q} > {log:q} 2>&1"


for statistic in user_defined(STATISTICS):

    rule:
        name:
            f"statistic_{statistic.name}"
        input:
            tables=tables_in(FOLDER),
            code=PLAN.source_files(statistic),
        output:
            f"{FOLDER}/statistics/{statistic.name}.csv",
        log:
            f"{FOLDER}/logs/statistics/{statistic.name}.log",
        retries: 0
        group:
            analysis_group
        conda:
            "../../environment.yml"
        resources:
            mem_mb=1000,
            runtime=10,
        params:
            statistic=statistic.name,
            modules=constant(PLAN.module_args()),
            tables=constant(f"{FOLDER}/tables"),
            folder=constant(f"{FOLDER}/statistics"),
        message:
            "statistic {params.statistic} of {params.tables}"
        shell:
            "python -P -m analysis statistics {params.tables:q} {params.folder:q} "
            "--only {params.statistic} {params.modules:q} > {log:q} 2>&1"


# Finding, figures with captions and numbers on one page, which the report shows beside the figures;
# the JSON is for the terminal.
rule summary:
    input:
        tables=tables_in(FOLDER),
        statistics=statistics_in(FOLDER),
        figures=PLAN.pictures(),
        code=code_of(*DRAWING, "report"),
    output:
        page=report(
            f"{FOLDER}/summary.html",
            category="0. What was found",
            labels={"Page": "The finding, figures and numbers"},
        ),
        finding=f"{FOLDER}/summary.json",
    log:
        f"{FOLDER}/logs/summary.log",
    retries: 0
    group:
        "analysis"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        folder=constant(FOLDER),
        modules=constant(PLAN.module_args(bool(user_defined(FIGURES)))),
    message:
        "summary of {params.folder}"
    shell:
        "python -P -m analysis page {params.folder:q} {output.page:q} {params.modules:q} > {log:q} 2>&1"


for figure, spec in FIGURES.items():

    rule:
        name:
            f"draw_{figure}"
        input:
            tables=tables_in(FOLDER),
            statistics=input_statistics(FOLDER, spec),
            code=PLAN.source_files(spec),
        output:
            png=report(
                f"{FOLDER}/figures/{{goal_space}}/{figure}.png",
                category=spec.section,
                labels={"Figure": spec.label, "Goal space": "{goal_space}"},
            ),
            pdf=f"{FOLDER}/figures/{{goal_space}}/{figure}.pdf",
        log:
            f"{FOLDER}/logs/figures/{{goal_space}}/{figure}.log",
        retries: 0
        group:
            analysis_group
        conda:
            "../../environment.yml"
        resources:
            mem_mb=1000,
            runtime=10,
        params:
            figure=figure,
            modules=constant(PLAN.module_args(not is_built_in(spec))),
            tables=constant(f"{FOLDER}/tables"),
            statistics=constant(f"{FOLDER}/statistics"),
            stem=subpath(output.png, strip_suffix=".png"),
        message:
            "draw {params.figure} of {params.tables}, {wildcards.goal_space}"
        shell:
            "python -P -m analysis figure {params.figure} --tables {params.tables:q} "
            "--statistics {params.statistics:q} --goal-space {wildcards.goal_space:q} "
            "--stem {params.stem:q} {params.modules:q} > {log:q} 2>&1"
