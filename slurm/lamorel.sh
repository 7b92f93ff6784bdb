#!/bin/bash
# One seed of a sampler behind lamorel, from the root of the project: slurm/lamorel.sh SAMPLER OVERRIDE...
# It goes on from the newest checkpoint. A run that stops before its time limit has saved its state and ends well
# without a manifest: then its Slurm job is put back into the queue.
set -euo pipefail
sampler=$1
shift
seed=${SLURM_ARRAY_TASK_ID:-0}
output=outputs/$sampler/seed$seed
loading=null
if compgen -G "$output/checkpoints/*.safetensors" > /dev/null; then loading=$output; fi
export LAMOREL_PORT=$((20000 + ${SLURM_JOB_ID:-$$} % 20000))
"${LAMOREL_PYTHON:-.venv-lamorel/bin/python}" -m lamorel_launcher.launch \
  --config-path "$PWD/${LAMOREL_CONFIGS:-config/little_zoo}" --config-name "${LAMOREL_CONFIG:-local_gpu_config}_$sampler" \
  rl_script_args.path="$PWD/magellan/main.py" rl_script_args.output_dir="$output" \
  rl_script_args.loading_path="$loading" rl_script_args.seed="$seed" "$@"
if [ ! -e "$output/manifest.json" ] && [ -n "${SLURM_JOB_ID:-}" ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
