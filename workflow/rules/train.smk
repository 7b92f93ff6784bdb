# One job per run. Its outputs are the tables and the manifest, which a run writes at its very end;
# checkpoints lie beside them undeclared, so that Snakemake never deletes them and a run that was
# stopped goes on where it was. A run that fails leaves the others alone (profile: keep-going).
# Operational settings are no parameters: a changed one makes no run anew.
OPERATIONAL_OVERRIDES = override_arguments(EXPERIMENT, operational=True)


rule train:
    output:
        manifest=f"{FOLDER}/runs/{{sampler}}/{{goal_space}}/seed{{seed}}/manifest.json",
        tables=expand(
            "{folder}/runs/{{sampler}}/{{goal_space}}/seed{{seed}}/{table}",
            folder=FOLDER,
            table=RUN_FILES[:-1],
        ),
    log:
        f"{FOLDER}/logs/train/{{sampler}}/{{goal_space}}/seed{{seed}}.log",
    benchmark:
        f"{FOLDER}/benchmarks/train/{{sampler}}/{{goal_space}}/seed{{seed}}.tsv"
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(2000),
        runtime=growing(RUNTIME_MINUTES[EXPERIMENT.preset]),
        gpu=0,
    params:
        folder=subpath(output.manifest, parent=True),
        preset=EXPERIMENT.preset,
        overrides=override_arguments(EXPERIMENT, operational=False),
        fingerprint=fingerprint,
        set_aside="workflow/scripts/set_aside_stale_checkpoint.py",
    message:
        "train {wildcards.sampler} on {wildcards.goal_space}, seed {wildcards.seed}"
    shell:
        # tee: progress reaches both the log and the person who watches; pipefail keeps the status,
        # -i lets the trainer speak its last words after Ctrl-C.
        "set -o pipefail; "
        "export OMP_NUM_THREADS={threads} OPENBLAS_NUM_THREADS={threads} MKL_NUM_THREADS={threads}; "
        "{{ python {params.set_aside:q} {params.folder:q} {params.fingerprint}; "
        + STEP
        + " python -m magellan train --sampler {wildcards.sampler} --goal-space {wildcards.goal_space} "
        "--seed {wildcards.seed} --preset {params.preset} {params.overrides:q} "
        + shlex.join(OPERATIONAL_OVERRIDES)
        + " --output {params.folder:q} --resume --threads {threads} --progress lines "
        "; }} 2>&1 | tee -i {log:q} >&2"
