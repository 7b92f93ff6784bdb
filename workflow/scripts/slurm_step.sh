#!/usr/bin/env bash
# slurm_step.sh COMMAND...: run a training command as a step of the current Slurm job.
#
# Slurm sends its signals (scancel, pre-emption, the time limit) to steps, and Snakemake, the process of the
# outer step, does not forward them: as a step of its own a run receives them, saves and stops.
# A locked run (exit status 73) still belongs to a job of a killed driver: this job waits for it and then
# resumes from its checkpoint.
set -u
locked=73
while true; do
  # All CPUs and GPUs of the job, also where several runs share one (--group-components).
  srun --overlap --ntasks=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --input=none "$@"
  status=$?
  [ "$status" -eq "$locked" ] || exit "$status"
  echo "waiting for the other job to end"
  sleep "${MAGELLAN_LOCK_PAUSE:-30}"
done
