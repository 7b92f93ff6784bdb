# The committed reference results.


# Redraw the reference figures from the reference tables, without training.
rule figures:
    input:
        reference_figures,
    localrule: True


# Make the tables of the configured experiment the reference. It has no output on purpose: only an
# explicit call may overwrite committed results, or train for them.
rule adopt:
    input:
        tables=tables_in(FOLDER),
    log:
        f"{FOLDER}/logs/adopt.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        source=lambda wildcards: FOLDER,
        target=REFERENCE,
    message:
        "copy the tables of {params.source} to {params.target}"
    shell:
        "python -m analysis adopt {params.source:q} {params.target:q} 2>&1 | tee {log:q}"
