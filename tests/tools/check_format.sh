#!/usr/bin/env bash
# Every source file is as clang-format 14 leaves it. Exit status 4 (skipped) where that version is not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
formatter=$(command -v clang-format-14 || true)
if [ -z "$formatter" ]; then
  echo "skipped: clang-format-14 is not installed"
  exit 4
fi
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.hpp' '*.cpp' '*.cu' '*.cuh')
existing=()
for file in "${files[@]}"; do
  [ -f "$file" ] && existing+=("$file")
done
[ ${#existing[@]} -gt 0 ]
printf '%s\n' "${existing[@]}" | xargs -P2 -n8 "$formatter" --dry-run -Werror
echo "${#existing[@]} files"
