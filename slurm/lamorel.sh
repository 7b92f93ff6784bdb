#!/bin/bash
# One seed of a sampler behind lamorel, from the root of the project: slurm/lamorel.sh SAMPLER OVERRIDE...
# It goes on from the newest checkpoint. A run that stops before its time limit has saved its state and ends well
# without a manifest: then its Slurm job is put back into the queue, unless it came no further than the attempt before.
set -euo pipefail
sampler=$1
shift
configs=${LAMOREL_CONFIGS:-config/little_zoo} config=${LAMOREL_CONFIG:-local_gpu_config}_$sampler
if [ ! -e "$configs/$config.yaml" ]; then
  echo "error: there is no $configs/$config.yaml; allowed: sbatch slurm/lamorel.sbatch SAMPLER" >&2
  exit 2
fi
seed=${SLURM_ARRAY_TASK_ID:-0}
output=outputs/$sampler/seed$seed
loading=null
# Where the last attempt that stopped by itself had come to.
reached() { grep -o 'update [0-9]*, episode [0-9]*' "$output/attempts.jsonl" 2> /dev/null | tail -n 1 || true; }
before=$(reached)
if compgen -G "$output/checkpoints/*.safetensors" > /dev/null; then loading=$output; fi
export LAMOREL_PORT=$((20000 + ${SLURM_JOB_ID:-$$} % 20000))
"${LAMOREL_PYTHON:-.venv-lamorel/bin/python}" -m lamorel_launcher.launch \
  --config-path "$PWD/$configs" --config-name "$config" \
  rl_script_args.path="$PWD/magellan/lamorel_main.py" rl_script_args.output_dir="$output" \
  rl_script_args.loading_path="$loading" rl_script_args.seed="$seed" "$@"
if [ ! -e "$output/manifest.json" ] && [ -n "${SLURM_JOB_ID:-}" ]; then
  if [ "$(reached)" = "$before" ]; then
    echo "error: the job came no further than before (${before:-no update}); it needs a longer time limit" >&2
    exit 1
  fi
  scontrol requeue "$SLURM_JOB_ID"
fi
