#!/usr/bin/env bash
# GKE through xpk: a workload on an existing cluster, restarted after preemption by the cluster itself.
#
#   tpu/gke.sh submit --name NAME --cluster C --project P --zone Z --type v5litepod-16 --image IMAGE \
#     [--slices 1] [--restarts 20] --yes -- vsr train rlvr ... --out /mnt/runs/one
#   tpu/gke.sh list   --cluster C --project P --zone Z
#   tpu/gke.sh delete --name NAME --cluster C --project P --zone Z --yes
#
# --dry-run prints the commands and runs none. Only submit costs money, and only with --yes.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common.sh
. "$here/common.sh"

[ $# -gt 0 ] || fail "say what to do: submit, list or delete; see the top of $0"
action="$1"
shift
options=(name cluster project zone type image slices restarts)
name='' cluster='' project='' zone='' type='' image='' slices=1 restarts=20
parse "$@"
need cluster project zone

xpk_workload() {
  local verb="$1"
  shift
  run xpk workload "$verb" --cluster "$cluster" --project "$project" --zone "$zone" "$@"
}

case "$action" in
  submit)
    need name type image
    billable
    [ ${#command_line[@]} -gt 0 ] || fail "no command; give it after --"
    xpk_workload create --workload "$name" --tpu-type "$type" --num-slices "$slices" --docker-image "$image" \
      --max-restarts "$restarts" --command "$(printf '%q ' "${command_line[@]}")" ;;
  list) xpk_workload list ;;
  delete)
    need name
    billable
    xpk_workload delete --workload "$name" ;;
  *) fail "unknown action $action" ;;
esac
