#!/usr/bin/env bash
# Record every case, and the advice, on this machine's GPU, with the torch that its python3 has:
#
#     env/gpu_evidence.sh [OUT]        OUT is where the files go; build/gpu, if it is not named
#
# It installs nothing, reaches for no network, and needs torch and Python 3.10 alone; a case about
# transformers is passed over where that is missing. All cases run at once, and one that takes
# longer than 7 minutes is stopped: files are written whole or not at all. Then, at home:
#
#     make evidence ARGS="--gather OUT"
#
# PYTHON names another interpreter, CASES some of the cases. DEVICE=cpu is for trying the script
# where there is no GPU.
set -u
if [ $# -gt 1 ] || [[ ${1:-} == -* ]]; then
    echo "gpu_evidence.sh: takes one folder at most, such as: env/gpu_evidence.sh OUT" >&2
    exit 2
fi
[ -z "${1:-}" ] || set -- "$(realpath -m -- "$1")"  # as seen from where it was called
cd "$(dirname "$0")/.." || exit
out=${1:-build/gpu}
python=${PYTHON:-python3}
device=${DEVICE:-cuda}
if ! { mkdir -p -- "$out" && touch "$out/.new" && rm "$out/.new"; } 2> /dev/null; then
    echo "gpu_evidence.sh: cannot write in $out: name another folder" >&2
    exit 1
fi
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}  # PYTHONSAFEPATH would hide this folder

every=$("$python" - "$device" << 'EOF'
import sys
try:
    import cases
    from cases.lab import evidence, run
except ImportError as error:
    sys.exit(f"gpu_evidence.sh: {sys.executable} cannot import torch and cases: {error}")
try:
    run.check_device(sys.argv[1])
except ValueError as error:
    sys.exit(f"gpu_evidence.sh: {error}")
print(evidence.machine(sys.argv[1]), file=sys.stderr)
print(*cases.NAMES, "advice")
EOF
) || exit 1

stop() {
    kill $(jobs -p) 2> /dev/null
    echo "gpu_evidence.sh: stopped; what is whole in $out stays" >&2
    exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM
began=$SECONDS failed=0 jobs=()
for case in ${CASES:-$every}; do
    timeout 420 "$python" -m cases record "$case" --device "$device" --out "$out" \
        > "$out/$case.log" 2>&1 &
    jobs+=("$case:$!")
done
for job in "${jobs[@]}"; do
    if wait "${job#*:}"; then state=done; else state="failed or stopped"; failed=1; fi
    echo "${job%%:*}: $state after $((SECONDS - began)) s"
    tail -n 3 "$out/${job%%:*}.log"
done
du -sh "$out"
exit "$failed"
