# The runs of an experiment, and their tables stacked.
#
# One job per run. Its outputs are the tables and the manifest, which a run writes at its end.
# Checkpoints beside them are undeclared, so that Snakemake never deletes them and a stopped run
# resumes. A failed run does not affect the others (profile: keep-going).
#
# The folder of a run is named by its identity: changed values make another folder and existing runs
# stay. So only the folder decides whether a run exists. `arguments` takes `output` to tell
# Snakemake that it depends on it: changed arguments do not remake a run.


# Without the rule, a report on complete runs never starts training.
if not EXPERIMENT.allow_incomplete:

    rule train:
        input:
            # No timestamps: the identity covers the start, the manifest has the model's digest.
            start=ancient(PLAN.start_files),
            backbone=ancient(PLAN.backbone_files),
        output:
            manifest=f"{FOLDER}/runs/{RUN_PATH}/manifest.json",
            tables=expand(
                "{folder}/runs/{run}/{table}",
                folder=FOLDER,
                run=RUN_PATH,
                table=RUN_FILES[:-1],
            ),
        log:
            f"{FOLDER}/logs/train/{RUN_PATH}.log",
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem_mb=growing(PLAN.memory_mb()),
            runtime=growing(RUNTIME_MINUTES[EXPERIMENT.preset]),
            gpu=PLAN.gpus,
            attempt=lambda wildcards, attempt: attempt,
        params:
            folder=subpath(output.manifest, parent=True),
            arguments=PLAN.train_arguments,
            start=PLAN.start_arguments,
            variant=PLAN.variant_text,
        message:
            "train {wildcards.sampler}{params.variant} on {wildcards.goal_space}, seed {wildcards.seed}"
        shell:
            # tee: progress goes to the log and the terminal; pipefail keeps the exit status; -i keeps
            # tee alive after Ctrl-C for the trainer's last lines.
            "set -o pipefail; "
            "export OMP_NUM_THREADS={threads} OPENBLAS_NUM_THREADS={threads} MKL_NUM_THREADS={threads}; "
            + STEP
            + " python -m magellan train {params.arguments:q} {params.start:q} --output {params.folder:q} --resume "
            "--threads {threads} --progress lines --attempt {resources.attempt} 2>&1 | tee -i {log:q} >&2"


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
        "python -P -m analysis combine --experiment {params.experiment:q} {params.options:q} "
        "--output {params.folder:q} {params.runs:q} > {log:q} 2>&1"
