#!/usr/bin/env bash
# What is to be learnt on a machine with a GPU, in two calls of nine minutes at most each, by what pack.sh has put beside this. Each
# step's result is written when it is there, into $OUT (default: report/ beside this file, or report_N): report.md, report.json, and a log
# for each step. A step that cannot run says why.
#
#     ./run.sh               # parts 1 to 4
#     ./run.sh --part N...   # 1 the machine and the tests; 2 compute-sanitizer; 3 whole runs; 4 decisions and bandwidths;
#                            # 5 bench gpu, gaps and stages; 6 beside PyTorch
#
# The limits of parts 1 to 4 together, and of 5 and 6, are 540 s; TROUPE_LIMIT_S=1080 doubles each.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
parts="1 2 3 4"
out=${OUT:-$here/report}
case "${1:-}" in
"") ;;
--part)
  shift
  parts=${*:?which part?}
  out=${OUT:-$here/report_${parts// /_}}
  ;;
*) sed -n '2,/^set/{/^#/p}' "$0" >&2; exit 2 ;;
esac
all_s=${TROUPE_LIMIT_S:-540}
mkdir -p "$out"
out=$(cd "$out" && pwd)
content=$here/content

if [ ! -d "$content" ]; then
  tar -xJf "$here/content.tar.xz" -C "$here" 2>/dev/null ||
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/content.tar.xz" "$here" ||
    { echo "run.sh: content.tar.xz cannot be unpacked: neither xz nor python3 is here" >&2; exit 1; }
fi

# cuBLAS, cuDNN and NCCL of PyTorch's packages.
nvidia=$(python3 -c 'import glob, importlib.util, os
spec = importlib.util.find_spec("nvidia")
print(":".join(sorted(path for root in (spec.submodule_search_locations if spec else []) for path in glob.glob(os.path.join(root, "*", "lib")))))' 2>/dev/null)
libraries=$content/lib${nvidia:+:$nvidia}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# By the loader, so that programs that ours start do not get our libraries.
ours() {
  local program=$1
  shift
  /lib64/ld-linux-x86-64.so.2 --library-path "$libraries" "$content/$program" "$@"
}
cd "$(mktemp -d)" || exit 1

names=() results=() seconds=() remarks=()

text() { # one line, fit for JSON and a table
  tr '\n\t|' '  /' | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g; s/  */ /g' | cut -c1-2400
}

write_report() {
  local i comma=
  {
    echo "# What a machine with a GPU has shown"
    echo
    echo "| step | result | s | |"
    echo "|---|---|---|---|"
    for i in "${!names[@]}"; do
      echo "| ${names[i]} | ${results[i]} | ${seconds[i]} | ${remarks[i]} |"
    done
  } >"$out/report.md"
  {
    echo "["
    for i in "${!names[@]}"; do
      echo "$comma{\"step\": \"${names[i]}\", \"result\": \"${results[i]}\", \"seconds\": ${seconds[i]}, \"remark\": \"${remarks[i]}\"}"
      comma=,
    done
    echo "]"
  } >"$out/report.json"
}

# step PART NAME LIMIT_S COMMAND...: the command says with 4 that it cannot run, and why in its last line.
step() {
  local of=$1 name=$2 limit=$3 began=$SECONDS result code remark watch
  shift 3
  case " $parts " in *" $of "*) ;; *) return 0 ;; esac
  limit=$((limit * all_s / 540))
  [ "$limit" -le $((all_s - SECONDS)) ] || limit=$((all_s - SECONDS))
  if [ "$limit" -le 5 ]; then
    result=skipped remark="no time is left; --part $of runs it"
  else
    set -m
    "$@" >"$out/$name.log" 2>&1 </dev/null &
    local job=$!
    { sleep "$limit"; kill -9 -- -$job; } >/dev/null 2>&1 &
    watch=$!
    set +m
    wait $job 2>/dev/null
    code=$?
    kill -- -$watch 2>/dev/null
    wait $watch 2>/dev/null
    case $code in
    0) result=passed ;;
    4) result=skipped ;;
    137) result="over its limit of $limit s" ;;
    *) result="failed ($code)" ;;
    esac
    remark=$(grep -v '^ *$' "$out/$name.log" | grep -v '^=*$' | tail -"${LINES_OF_REMARK:-1}" | text)
  fi
  names+=("$name") results+=("$result") seconds+=($((SECONDS - began))) remarks+=("$remark")
  echo "$name: $result. $remark"
  write_report
}

machine() {
  uname -srm
  nproc
  ours troupe doctor
  python3 -c 'import torch; print("PyTorch", torch.__version__, torch.version.cuda)' || echo "no PyTorch"
  gpu || return 4
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
}

judged() { # COMMAND...: of a test program; skipped where none of its cases could run
  local code log
  log=$(mktemp)
  "$@" | tee "$log"
  code=${PIPESTATUS[0]}
  if [ "$code" -eq 4 ]; then
    ! grep -q "^All tests passed (" "$log" || { code=0; echo "All others passed"; }
    grep "^skipped" "$log" | head -1
  fi
  return "$code"
}

tests() { # PROGRAM FILE: the cases of one file
  judged ours "$1" "-#" "[#$2]" -w NoTests
}

sanitizer() { # TOOL CASES...: of kernels_tests
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer"; return 4; }
  gpu || return 4
  local tool=$1
  shift
  judged env LD_LIBRARY_PATH="$libraries" compute-sanitizer --tool "$tool" --error-exitcode 1 "$content/kernels_tests" "$@"
}

gpu() {
  { command -v nvidia-smi && nvidia-smi -L; } || { echo "no GPU that the driver tells of"; return 1; }
}

# The same experiment on the CPU and on the GPU: the mean loss on the test data, which may differ by the part that is allowed.
whole_run() { # ALLOWED SETTINGS...
  gpu || return 4
  local allowed=$1 device losses=()
  shift
  for device in cpu cuda:0; do
    # At the preset's rate the last bit of a sum moves the loss by a tenth in 200 updates.
    ours troupe run glyphs-mlp --out none --set stop.updates=100 --set optimizer.learning_rate=0.01 \
      --set "placement.devices=[$device]" "$@" >"$out/run.log" 2>&1 ||
      { cat "$out/run.log"; return 1; }
    losses+=("$(sed -n 's/^loss .* test //p' "$out/run.log")")
  done
  awk -v a="${losses[0]}" -v b="${losses[1]}" -v allowed="$allowed" 'BEGIN {
    d = (a > b ? a - b : b - a) / a
    print "test loss on the CPU " a ", on the GPU " b ", apart by " d ", allowed " allowed
    exit !(d <= allowed) }'
}

played() { # the GPU is one that the CPU plays
  [ -e "$content/lib/libcudnn.so.on_cpu" ]
}

bandwidth() {
  local elements=$((1 << 26))
  ! played || elements=$((1 << 14))
  ours gpu_bandwidth $elements
}

decision() {
  local small=
  ! played || small=small
  ours gpu_decisions "$1" $small
}

bench() {
  gpu || return 4
  ours troupe bench "$@"
}

gaps() { # how much of each second the GPU runs no kernel
  gpu || return 4
  [ -e "$content/gpu_idle.so" ] || { echo "packed on a machine without CUPTI"; return 4; }
  CUDA_INJECTION64_PATH=$content/gpu_idle.so ours troupe bench gpu --quick
}

peers() {
  python3 -c 'import torch' 2>/dev/null || { echo "no PyTorch"; return 4; }
  bench gpu-peers
}

step 1 machine 20 machine
step 1 parity_test 50 tests kernels_tests parity_test
for file in precision_test passes_bf16_test cuda_views_test cuda_stream_test cuda_coding_test cuda_experts_test group_mean_test; do
  step 1 kernels_$file 20 tests kernels_tests $file
done
step 1 device_link_gpu_test 15 tests runtime_tests device_link_gpu_test
step 1 precision_test 25 tests runtime_tests precision_test
step 1 gpu_test 40 tests system_tests gpu_test
for tool in memcheck racecheck synccheck; do
  step 2 $tool 30 sanitizer $tool "layer and group normalization agree,reductions agree,attention agrees"
done
step 2 memcheck_cuda_stream_test 30 sanitizer memcheck "-#" "[#cuda_stream_test]"
step 3 run_one_stage 15 whole_run 0.002 --set pipeline.stages=1
step 3 run_one_f_one_b 15 whole_run 0.002 --set pipeline.schedule=one_f_one_b --set pipeline.weights=latest
step 3 run_replicas 15 whole_run 0.002 --set pipeline.stages=1 --set replicas.count=2 --set replicas.exchange=synchronous
# What threads do on the real clock differs from run to run.
step 3 run_async_one_f_one_b 15 whole_run 0.05
step 4 decision_waiting 24 decision waiting
for what in bgrad lenet muon attention; do
  step 4 decision_$what 11 decision $what
done
LINES_OF_REMARK=26
step 4 bandwidth 22 bandwidth
step 5 bench_gpu 40 bench gpu
step 5 gaps 40 gaps
step 5 bench_stages 200 bench gpu-stages
step 6 bench_peers 260 peers
echo "written: $out/report.md, $out/report.json"
case " ${results[*]} " in *failed* | *over*) exit 1 ;; esac
