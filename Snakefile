# The workflow lives in workflow/; this file lets plain `snakemake` find it from the project root.
workflow.include("workflow/Snakefile", overwrite_default_target=True)
