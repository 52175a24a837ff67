# Sourced by scripts that do several things one after the other: `step NAME` begins one. When the
# script ends, also when it ends early, a table shows how long each of them took, and how much time
# of all cores together.
# shellcheck shell=bash

steps_done=()
steps_times=$(mktemp "${TMPDIR:-/tmp}/tidewheel-steps.XXXXXX")
step_name=
step_began=0
step_began_cpu=0

# Seconds of CPU time that ended commands have used so far, to `cpu`. In this shell itself, because
# each shell counts its own children only.
steps_cpu() {
  times >"$steps_times"
  cpu=$(sed -n '2s/[ms]/ /gp' "$steps_times" | awk '{ printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }')
}

steps_line() { printf '%5d:%02d %5d:%02d  %s' $(($1 / 60)) $(($1 % 60)) $(($2 / 60)) $(($2 % 60)) "$3"; }

# `step_close MARK`: what ran until now is over.
step_close() {
  [ -n "$step_name" ] || return 0
  local cpu
  steps_cpu
  steps_done+=("$(steps_line $((SECONDS - step_began)) $((cpu - step_began_cpu)) "$step_name$1")")
  step_name=
}

# `step NAME`: begins NAME, which goes on until the next one.
step() {
  step_close ""
  local cpu
  steps_cpu
  step_name=$1 step_began=$SECONDS step_began_cpu=$cpu
  printf '\n== %s\n' "$1"
}

steps_end() {
  local status=$? cpu
  trap - EXIT
  if [ "$status" = 0 ]; then
    step_close ""
  else
    step_close "  FAILED (exit code $status)"
  fi
  steps_cpu
  printf '\n== how long each step took\n    time      CPU  step (minutes:seconds)\n'
  printf '%s\n' "${steps_done[@]}" "$(steps_line "$SECONDS" "$cpu" "in all")"
  rm -f "$steps_times"
  exit "$status"
}
trap steps_end EXIT
# So that a signal ends in the table as well.
trap 'exit 130' INT
trap 'exit 143' TERM

need() { command -v "$1" >/dev/null 2>&1; }

# `install_missing COMMAND PACKAGE WHY`: Debian's package of a missing program, where it may be
# installed.
install_missing() {
  ! need "$1" || return 0
  if need apt-get && [ "$(id -u)" = 0 ]; then
    step "installing $2, $3"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$2"
  else
    echo "$1 is missing: install it (Debian: apt-get install $2)" >&2
    exit 1
  fi
}

# What every build needs: Rust with its formatter and its linter, and a C compiler.
install_build_tools() {
  if ! need cargo; then
    echo "cargo is missing: install Rust 1.90 or newer (https://rustup.rs)" >&2
    exit 1
  fi
  install_missing cc build-essential "the C compiler"
  local part
  for part in rustfmt clippy; do
    if ! cargo "${part/rustfmt/fmt}" --version >/dev/null 2>&1; then
      step "installing $part"
      rustup component add "$part"
    fi
  done
}

check_format() {
  step "format"
  cargo fmt --all --check
}

check_lints() {
  step "lints"
  cargo clippy --workspace --all-targets --locked -- -D warnings
}

# Fewer, larger compilations fit two cores better than incremental ones, and leave a smaller target
# folder. The same in all scripts, so that what one has built serves the others.
export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
# Snapshots are compared, never accepted.
export INSTA_UPDATE=no

# Many tests wait for real time to pass, so that more of them than there are cores run side by side.
test_threads=${TEST_THREADS:-$((2 * $(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)))}
export RUST_TEST_THREADS=$test_threads NEXTEST_TEST_THREADS=$test_threads
