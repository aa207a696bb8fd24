#!/usr/bin/env bash
# Makes the picture of README.md: what staleness costs five weight policies. It runs the preset teacher-mlp, whose data is built
# in, on 1 to 8 stages with five seeds each, on the virtual clock, so that the same machine draws the same picture again. That
# takes two minutes on two idle cores.
#
#     apps/docs/figures.sh [PROGRAM]      # PROGRAM: build/release/troupe, unless another is given
#
# It writes apps/docs/staleness.svg, which is committed: run this script when what it shows may have changed.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(realpath "${1:-build/release/troupe}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$program" compare teacher-mlp --set optimizer.learning_rate=0.1 --set stop.epochs=10 --seeds 5 --quiet \
  --vary pipeline.weights=nwpt,spectrain,pipemare,stash,latest --vary pipeline.stages=1,2,4,6,8 --out "$work/runs"

python3 - "$work/runs/compare.csv" "commit $(git rev-parse --short HEAD)" >"$work/staleness.svg" <<'PY'
"""Lines of accuracy over mean staleness, with a bar of the deviation over the seeds at each point."""

import csv
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 70, 620, 50, 330
LETTER = 16  # pixels between two names
# Okabe and Ito's colours, which people who see fewer colours tell apart, too; on dark pages lighter ones of the same names.
COLOURS = {"nwpt": ("#0072b2", "#56b4e9"), "spectrain": ("#d55e00", "#ff9b57"), "pipemare": ("#009e73", "#3fd6a8"),
           "stash": ("#b0568c", "#e39cc4"), "latest": ("#555555", "#bbbbbb")}

lines = {}
for row in csv.DictReader(open(sys.argv[1], encoding="utf-8")):
    point = (float(row["staleness_mean"]), 100 * float(row["accuracy_end"]), 100 * float(row["accuracy_end_sd"]))
    lines.setdefault(row["pipeline.weights"], []).append(point)
points = [point for line in lines.values() for point in line]
x_max = max(x for x, _, _ in points)
low = 5 * int(min(y - sd for _, y, sd in points) // 5)
high = 5 * int(max(y + sd for _, y, sd in points) // 5 + 1)


def x_of(staleness):
    return LEFT + (RIGHT - LEFT) * staleness / x_max


def y_of(accuracy):
    return BOTTOM - (BOTTOM - TOP) * (accuracy - low) / (high - low)


def text(x, y, words, more=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{words}</text>'


style = "".join(f".{name}{{stroke:{light};fill:{light}}}" for name, (light, _) in COLOURS.items())
dark = "".join(f".{name}{{stroke:{colour};fill:{colour}}}" for name, (_, colour) in COLOURS.items())
out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
       "<title>What staleness costs: test accuracy of five weight policies over the staleness of their gradients</title>",
       f"<style>text{{fill:#333;stroke:none}}.grid{{stroke:#ccc}}polyline{{fill:none!important;stroke-width:2}}{style}"
       f"@media(prefers-color-scheme:dark){{text{{fill:#ddd}}.grid{{stroke:#555}}{dark}}}</style>",
       text(LEFT, 24, "What staleness costs, and what prediction gives back", 'font-size="16"')]
for accuracy in range(low, high + 1, 5):
    y = y_of(accuracy)
    out += [f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>', text(LEFT - 8, y + 4, f"{accuracy} %", 'text-anchor="end"')]
for staleness in range(int(x_max) + 1):
    out.append(text(x_of(staleness), BOTTOM + 20, staleness, 'text-anchor="middle"'))
out.append(text((LEFT + RIGHT) / 2, BOTTOM + 40, "staleness of the gradients: mean number of updates that they miss", 'text-anchor="middle"'))
out.append(text(LEFT, HEIGHT - 8, "accuracy on the test data (bars: deviation over five seeds); teacher-mlp, 10 epochs, 1 to 8 stages; "
                f"{sys.argv[2]}", 'font-size="11"'))
name_y = -LETTER
for name, line in sorted(lines.items(), key=lambda item: -item[1][-1][1]):
    line.sort()
    out.append(f'<g class="{name}"><polyline points="{" ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y, _ in line)}"/>')
    out += [f'<path d="M{x_of(x):.1f} {y_of(y - sd):.1f}V{y_of(y + sd):.1f}" stroke-opacity=".5"/>'
            f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3"/>' for x, y, sd in line]
    name_y = max(y_of(line[-1][1]) + 4, name_y + LETTER)
    out.append(f'<path d="M{RIGHT + 10} {name_y - 4:.1f}h14" stroke-width="2"/></g>' + text(RIGHT + 30, name_y, name))
print("\n".join(out + ["</svg>"]))
PY
mv "$work/staleness.svg" apps/docs/staleness.svg
echo "apps/docs/staleness.svg"
