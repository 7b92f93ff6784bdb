#!/usr/bin/env bash
# slurm_step.sh COMMAND...: runs a training command as a step of the Slurm job it is in.
#
# Slurm sends its signals (scancel, pre-emption, the time limit) to steps, and Snakemake, which is the
# process of the outer step, does not hand them on: as a step of its own a run hears them, saves and stops.
# A run that is locked (exit status 73) still belongs to a job that a killed driver left behind:
# this job waits for it and then goes on from its checkpoint.
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
