#!/bin/sh
# One stage of the checks on a machine with a GPU and without a network: sh device.sh STAGE OUT [SECONDS]
#
# STAGE is env, cal, proofs or torch, in this order, each within SECONDS (440, so that it ends within eight minutes). It goes on
# where OUT/gpu.json ends. What is beside this file is what `python -m bench.gpu_bundle` has packed: source.tar.xz, wheels, and
# saved.json for cal. What the machine's own Python has, such as NumPy, SciPy and torch, is used. With DRY=1 the GPU is a stub, and
# each part has one case.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
stage=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
seconds=${3:-440}
python=${PYTHON:-python3}
work=${WORK:-$here/work}
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME="$work/cache" XDG_DATA_HOME="$work/data"
export PATH="$PATH:${CUDA_ROOT:-/usr/local/cuda}/bin"

if [ ! -f "$work/ready" ]; then
    mkdir -p "$work/site" "$work/build"
    tar xJf "$here/source.tar.xz" -C "$work"
    for wheel in "$here"/wheels/*.whl; do
        [ ! -f "$wheel" ] || "$python" -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$wheel"
    done
    # LLVM 22 is carried without symbols, for a machine whose own llvmlite is older.
    if ! "$python" -c "import llvmlite.binding as b, sys; sys.exit(b.llvm_version_info[0] < 22)" 2>/dev/null; then
        [ ! -f "$here/llvmlite.tar.xz" ] || tar xJf "$here/llvmlite.tar.xz" -C "$work/site"
    fi
    export PYTHONPATH="$work:$work/site"
    if [ -z "${DRY:-}" ] && ! "$python" -c "import pycuda.driver" 2>/dev/null; then
        CUDA_ROOT=${CUDA_ROOT:-/usr/local/cuda} MAX_JOBS=$(nproc) "$python" -m pip install -q --no-index --no-deps \
            --no-build-isolation --target "$work/site" "$here"/wheels/pycuda-*.tar.gz
    fi
    [ ! -f "$here/saved.json" ] || cp "$here/saved.json" "$work/build/"
    : > "$work/ready"
fi
export PYTHONPATH="$work:$work/site"
[ -z "${DRY:-}" ] || export PYTHONPATH="$work/tests/gpu/fake:$PYTHONPATH"
cd "$work"

parts() { # the parts of bench.gpu; what they found is in the file, and their status is that of this script
    asked=""
    for part in "$@"; do asked="$asked --only $part"; done
    # shellcheck disable=SC2086
    timeout $((seconds + 30)) "$python" -m bench.gpu $asked --seconds "$seconds" --json "$out/gpu.json" --resume ${DRY:+--cases 1}
}

case $stage in
env)
    {
        nvidia-smi || true
        nproc
        free -g || true
        "$python" -V
        for tool in ptxas nvdisasm nvcc compute-sanitizer ncu; do command -v $tool || echo "no $tool"; done
        "$python" -m pip list 2>/dev/null | grep -iE "^(torch|triton|llvmlite|numpy|scipy|pycuda) " || true
        ulimit -a
    } > "$out/env.txt" 2>&1
    cat "$out/env.txt"
    parts instructions
    ;;
cal) parts cal ;;
proofs) parts proofs nvcc sanitizer ;;
torch) parts torch ;;
*)
    echo "device.sh: there is no stage $stage: env, cal, proofs, torch" >&2
    exit 2
    ;;
esac
