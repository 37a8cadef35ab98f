#!/usr/bin/env bash
# TPU VMs through queued resources: create, install, run on every worker, tail, sync, delete.
#
#   tpu/queued.sh create  --name NAME --project P --zone Z --type v5litepod-16 [--runtime R] [--spot yes] --yes
#   tpu/queued.sh wait    --name NAME --project P --zone Z
#   tpu/queued.sh install --name NAME --project P --zone Z --source gs://BUCKET/vsr_jax.tar.gz
#   tpu/queued.sh run     --name NAME --project P --zone Z -- vsr train rlvr ... --out /mnt/runs/one
#   tpu/queued.sh tail    --name NAME --project P --zone Z
#   tpu/queued.sh sync    --name NAME --project P --zone Z --from /mnt/runs --to gs://BUCKET/runs
#   tpu/queued.sh delete  --name NAME --project P --zone Z --yes
#   tpu/queued.sh watch   (options of create) --source ... -- COMMAND     create, run, and again after a preemption
#
# --dry-run prints the commands and runs none. Only create and watch cost money, and only with --yes.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=common.sh
. "$here/common.sh"

[ $# -gt 0 ] || fail "say what to do: create, wait, install, run, tail, sync, delete or watch; see the top of $0"
action="$1"
shift
options=(name project zone type runtime spot source from to poll)
name='' project='' zone='' type='' runtime=v2-alpha-tpuv5-lite spot=no source='' from='' to='' poll=60
parse "$@"
need name project zone

cloud() {
  run gcloud compute tpus "$@" --project "$project" --zone "$zone"
}

on_workers() {
  cloud tpu-vm ssh "$name" --worker=all --command "$1"
}

state() {
  gcloud compute tpus queued-resources describe "$name" --project "$project" --zone "$zone" \
    --format 'value(state.state)'
}

create() {
  need type
  billable
  local more=()
  [ "$spot" = no ] || more=(--spot)
  cloud queued-resources create "$name" --node-id "$name" --accelerator-type "$type" \
    --runtime-version "$runtime" ${more[@]+"${more[@]}"}
}

wait_active() {
  [ "$dry_run" = no ] || { echo "+ (wait until $name is ACTIVE)" >&2; return; }
  local now
  while now="$(state)"; [ "$now" != ACTIVE ]; do
    case "$now" in
      FAILED | SUSPENDED) fail "$name is $now; delete it and create it again" ;;
    esac
    echo "$name is $now" >&2
    sleep "$poll"
  done
}

install() {
  need source
  on_workers "python3 -m venv ~/venv && gcloud storage cp '$source' ~/vsr_jax.tar.gz && mkdir -p ~/vsr_jax && \
tar xzf ~/vsr_jax.tar.gz -C ~/vsr_jax --strip-components=1 && ~/venv/bin/pip install --quiet \"\$HOME/vsr_jax[tpu]\""
}

start() {
  [ ${#command_line[@]} -gt 0 ] || fail "no command; give it after --"
  local quoted
  quoted="$(printf '%q ' "${command_line[@]}")"
  # The log of each worker stays on it; the exit status is that of the command.
  on_workers "set -o pipefail; export PATH=\$HOME/venv/bin:\$PATH; $quoted 2>&1 | tee -a ~/vsr.log"
}

delete() {
  billable
  cloud queued-resources delete "$name" --force --quiet
}

watch() {
  billable
  while :; do
    create
    wait_active
    install
    if start; then
      return
    fi
    # A command that failed on a living slice is a mistake to be read, not a preemption to be repeated.
    if [ "$dry_run" = yes ] || [ "$(state)" = ACTIVE ]; then
      fail "the command failed while $name is up; see: $0 tail --name $name ..."
    fi
    echo "$name was preempted; starting it again" >&2
    delete
  done
}

case "$action" in
  create) create ;;
  wait) wait_active ;;
  install) install ;;
  run) start ;;
  tail) cloud tpu-vm ssh "$name" --worker=0 --command "tail -n 100 -f ~/vsr.log" ;;
  sync) need from to; on_workers "gcloud storage rsync --recursive '$from' '$to'" ;;
  delete) delete ;;
  watch) watch ;;
  *) fail "unknown action $action" ;;
esac
