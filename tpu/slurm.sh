#!/usr/bin/env bash
# SLURM, for GPU pods: one process a GPU; the job goes back into the queue when it is preempted or a node fails.
#
#   tpu/slurm.sh submit --name NAME --nodes 2 --gpus 8 [--partition P] [--time 24:00:00] [--grace 120] --yes -- \
#     vsr train rlvr ... --out /shared/runs/one
#   tpu/slurm.sh status --name NAME
#   tpu/slurm.sh cancel --name NAME --yes
#
# --dry-run prints the commands and runs none. Only submit costs money, and only with --yes.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common.sh
. "$here/common.sh"

[ $# -gt 0 ] || fail "say what to do: submit, status or cancel; see the top of $0"
action="$1"
shift
options=(name nodes gpus partition time grace)
name='' nodes=1 gpus=8 partition='' time=24:00:00 grace=120
parse "$@"
need name

case "$action" in
  submit)
    billable
    [ ${#command_line[@]} -gt 0 ] || fail "no command; give it after --"
    more=()
    [ -z "$partition" ] || more=(--partition "$partition")
    # SIGTERM reaches the processes before the time is up: they save and exit with 0.
    run sbatch --job-name "$name" --nodes "$nodes" --ntasks-per-node "$gpus" --gpus-per-node "$gpus" \
      --time "$time" --requeue --open-mode=append --signal "TERM@$grace" --output "$name-%j.log" \
      ${more[@]+"${more[@]}"} --wrap "srun --kill-on-bad-exit=1 $(printf '%q ' "${command_line[@]}")" ;;
  status) run squeue --name "$name" ;;
  cancel)
    billable
    run scancel --name "$name" ;;
  *) fail "unknown action $action" ;;
esac
