# shellcheck shell=bash
# Shared by the launchers: sourced, not run. Nothing that costs money starts without --yes.

fail() {
  echo "error: $*" >&2
  exit 2
}

# Prints a command as it would be typed, and runs it unless this is a dry run.
run() {
  printf '+' >&2
  printf ' %q' "$@" >&2
  printf '\n' >&2
  if [ "$dry_run" = no ]; then
    "$@"
  fi
}

# Guards what is billed.
billable() {
  if [ "$dry_run" = no ] && [ "$yes" = no ]; then
    fail "this starts machines that cost money; say --yes, or --dry-run to see the commands"
  fi
}

need() {
  local _need
  for _need in "$@"; do
    [ -n "${!_need-}" ] || fail "--${_need//_/-} is not given"
  done
}

# Reads "--name value" into variables of the same name, with underscores for dashes, for the names in the array
# `options`; what comes after -- is the command.
# shellcheck disable=SC2034,SC2154  # set for, and by, the launcher
parse() {
  local _option
  dry_run=no yes=no command_line=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --dry-run) dry_run=yes; shift ;;
      --yes) yes=yes; shift ;;
      --) shift; command_line=("$@"); return ;;
      --*)
        _option="${1#--}"
        case " ${options[*]} " in
          *" $_option "*) ;;
          *) fail "unknown option $1; known are --dry-run, --yes and, with --, ${options[*]}" ;;
        esac
        [ $# -ge 2 ] || fail "$1 needs a value"
        printf -v "${_option//-/_}" '%s' "$2"
        shift 2 ;;
      *) fail "unexpected argument $1" ;;
    esac
  done
}
