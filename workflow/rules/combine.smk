# Stack the runs of an experiment. With `allow_incomplete` only complete runs are stacked, and the
# manifest lists the others as missing; the key itself is not part of the tables.


rule combine:
    input:
        manifests=PLAN.run_files(RUN_FILES[-1:]),
        tables=PLAN.run_files(RUN_FILES[:-1]),
        code=code_of("tables"),
    output:
        manifest=f"{FOLDER}/tables/manifest.json",
        tables=expand("{folder}/tables/{table}", folder=FOLDER, table=RUN_FILES[:-1]),
    log:
        f"{FOLDER}/logs/combine.log",
    retries: 0
    group:
        analysis_group
    conda:
        "../../environment.yml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        experiment=constant(PLAN.tables_experiment()),
        runs=constant(PLAN.run_folders()),
        options=["--allow-incomplete", FOLDER] if PLAN.left_out else [],
        reasons=constant(PLAN.missing_text(PLAN.left_out)),  # a new reason remakes the tables
        folder=subpath(output.manifest, parent=True),
    message:
        f"combine the tables of {EXPERIMENT.experiment}"
    shell:
        "python -m analysis combine --experiment {params.experiment:q} {params.options:q} "
        "--output {params.folder:q} {params.runs:q} > {log:q} 2>&1"
