# One job per run. Its outputs are the tables and the manifest, which a run writes at its very end;
# checkpoints lie beside them undeclared, so that Snakemake never deletes them and a run that was
# stopped goes on where it was. A run that fails leaves the others alone (profile: keep-going).
#
# A run's folder carries its identity: another value makes another folder, and what was made before
# stays where it is. So nothing but the folder decides whether a run is there. `arguments` takes
# `output` only to tell Snakemake that it follows from it: a changed word makes no run anew.


rule train:
    input:
        # Its time says nothing: what counts of a beginning is in the identity.
        start=ancient(PLAN.start_files),
        # Nor does that of a model: its digest is in the manifest.
        backbone=ancient(PLAN.made_backbone),
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
    benchmark:
        f"{FOLDER}/benchmarks/train/{RUN_PATH}.tsv"
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
        variant=PLAN.in_words,
    message:
        "train {wildcards.sampler}{params.variant} on {wildcards.goal_space}, seed {wildcards.seed}"
    shell:
        # tee: progress reaches both the log and the person who watches; pipefail keeps the status,
        # -i lets the trainer speak its last words after Ctrl-C.
        "set -o pipefail; "
        "export OMP_NUM_THREADS={threads} OPENBLAS_NUM_THREADS={threads} MKL_NUM_THREADS={threads}; "
        + STEP
        + " python -m magellan train {params.arguments:q} {params.start:q} --output {params.folder:q} --resume "
        "--threads {threads} --progress lines --attempt {resources.attempt} 2>&1 | tee -i {log:q} >&2"
