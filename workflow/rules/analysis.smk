# From combined tables to statistics and figures. {folder} is the folder of the configured
# experiment or of the committed reference results: the same rules serve both. The analysis code is
# an input, so that editing it remakes its outputs without training.
# These jobs take seconds: on a cluster they are one job together with `combine`. They are not
# retried: the same tables give the same error.


rule statistics:
    input:
        tables=tables_in("{folder}"),
        code=code_of(*COMPUTING),
    output:
        statistics_in("{folder}"),
    log:
        "{folder}/logs/statistics.log",
    retries: 0
    group:
        analysis_group
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        tables=lambda wildcards: f"{wildcards.folder}/tables",
        folder=lambda wildcards: f"{wildcards.folder}/statistics",
    message:
        "statistics of {wildcards.folder}"
    shell:
        "python -m analysis statistics {params.tables:q} {params.folder:q} > {log:q} 2>&1"


for statistic in user_defined(STATISTICS):

    rule:
        name:
            f"statistic_{statistic.name}"
        input:
            tables=tables_in("{folder}"),
            code=PLAN.source_files(statistic),
        output:
            f"{{folder}}/statistics/{statistic.name}.csv",
        log:
            f"{{folder}}/logs/statistics/{statistic.name}.log",
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
            tables=lambda wildcards: f"{wildcards.folder}/tables",
            folder=lambda wildcards: f"{wildcards.folder}/statistics",
        message:
            "statistic {params.statistic} of {wildcards.folder}"
        shell:
            "python -m analysis statistics {params.tables:q} {params.folder:q} "
            "--only {params.statistic} {params.modules:q} > {log:q} 2>&1"


rule numbers:
    input:
        tables=tables_in("{folder}"),
        statistics=statistics_in("{folder}"),
        study=study_of,
        code=code_of(*COMPUTING, "report"),
    output:
        page=report(
            "{folder}/figures/{goal_space}/numbers.html",
            caption="../report/numbers.rst",
            category="1. Success",
            labels={"Figure": "Success in numbers", "Goal space": "{goal_space}"},
        ),
    log:
        "{folder}/logs/figures/{goal_space}/numbers.log",
    retries: 0
    group:
        analysis_group
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        study=lambda wildcards, input: ["--study", STUDY] if input.study else [],
        facts=PLAN.facts,
    message:
        "numbers of {wildcards.folder}, {wildcards.goal_space}"
    shell:
        "python -m analysis summary {wildcards.folder:q} {params.study:q} "
        "--goal-space {wildcards.goal_space:q} --html {output.page:q} > {log:q} 2>&1"


# The finding on one page; the JSON is for the terminal and the report's first page.
rule summary:
    input:
        tables=tables_in("{folder}"),
        statistics=statistics_in("{folder}"),
        figures=PLAN.pictures,
        code=code_of(*DRAWING, "report"),
        captions=captions(CHECKOUT),
    output:
        page="{folder}/summary.html",
        finding="{folder}/summary.json",
    log:
        "{folder}/logs/summary.log",
    retries: 0
    group:
        "analysis"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        modules=constant(PLAN.module_args(bool(user_defined(FIGURES)))),
        facts=PLAN.facts,
    message:
        "summary of {wildcards.folder}"
    shell:
        "python -m analysis page {wildcards.folder:q} {output.page:q} {params.modules:q} > {log:q} 2>&1"


rule coverage:
    input:
        manifest="{folder}/tables/manifest.json",
        code=code_of("tables"),
    output:
        page=report(
            "{folder}/figures/coverage.html",
            caption="../report/coverage.rst",
            category="4. Runs",
            labels={"Page": "Coverage of the grid; time, memory, restarts"},
        ),
    log:
        "{folder}/logs/figures/coverage.log",
    retries: 0
    group:
        analysis_group
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        tables=lambda wildcards: f"{wildcards.folder}/tables",
    message:
        "coverage of {wildcards.folder}"
    shell:
        "python -m analysis coverage {params.tables:q} {output.page:q} > {log:q} 2>&1"


for figure, spec in FIGURES.items():

    rule:
        name:
            f"draw_{figure}"
        input:
            tables=tables_in("{folder}"),
            statistics=input_statistics(spec),
            code=PLAN.source_files(spec),
        output:
            png=report(
                f"{{folder}}/figures/{{goal_space}}/{figure}.png",
                caption=caption_of(spec),
                category=spec.section,
                labels={"Figure": spec.label, "Goal space": "{goal_space}"},
            ),
            pdf=f"{{folder}}/figures/{{goal_space}}/{figure}.pdf",
        log:
            f"{{folder}}/logs/figures/{{goal_space}}/{figure}.log",
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
            label=spec.label,
            caption=constant(as_plain_text(spec.caption)),
            tables=lambda wildcards: f"{wildcards.folder}/tables",
            statistics=lambda wildcards: f"{wildcards.folder}/statistics",
            stem=subpath(output.png, strip_suffix=".png"),
            facts=PLAN.facts,
        message:
            "draw {params.figure} of {wildcards.folder}, {wildcards.goal_space}"
        shell:
            "python -m analysis figure {params.figure} --tables {params.tables:q} "
            "--statistics {params.statistics:q} --goal-space {wildcards.goal_space:q} "
            "--stem {params.stem:q} {params.modules:q} > {log:q} 2>&1"
