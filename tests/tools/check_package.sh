#!/usr/bin/env bash
# check_package.sh BUILD CXX PYTHON: installs a build into a temporary folder, and there, outside the tree, builds and runs the
# example of tests/package against what was installed. apps/docs/tutorial.md shows the same steps.
set -euo pipefail
build=$1
cxx=$2
python=$3
tools=$(cd "$(dirname "$0")" && pwd)
example=$(cd "$(dirname "$0")/../package" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset TROUPE_DATA

# says TEXT COMMAND...: the command ends well and prints TEXT.
says() { expect 0 "$@"; }

# expect STATUS TEXT COMMAND...
expect() {
  local status=$1 text=$2 got=0
  shift 2
  "$@" >said 2>&1 || got=$?
  if [ "$got" -ne "$status" ] || ! grep -qF -- "$text" said; then
    printf 'check_package: %s: status %s, due are %s and "%s"; it said:\n' "$*" "$got" "$status" "$text" >&2
    cat said >&2
    exit 1
  fi
}

cp -r "$example" "$work/mine"
cd "$work/mine"
says /installed/include/troupe/runtime/schemes/rules/rule.hpp cmake --install "$build" --prefix "$work/installed"
installed=$work/installed

# The program itself, its licence, and headers that raise no warning: all that they include has come along, and none but the
# experiment's definition is of protobuf. (That each stands alone is seen when the tree is built.)
says "troupe 0." "$installed/bin/troupe" --version
[ -f "$installed/share/doc/troupe/LICENSE" ]
[ -f "$installed/include/troupe/messages/experiment.proto" ]
(cd "$installed/include/troupe" && find . -name '*.hpp' -printf '%P\n') | sort >headers
[ "$(wc -l <headers)" -gt 40 ]
while read -r header; do
  sed -nE 's/^#include "(.*)"/\1/p' "$installed/include/troupe/$header"
done <headers | sort -u >included
comm -23 included headers >missing
[ ! -s missing ] || { echo "check_package: included and not installed: $(tr '\n' ' ' <missing)" >&2 && exit 1; }
sed 's/.*/#include "&"/' headers | "$cxx" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I "$installed/include/troupe" -x c++ -

# The tutorial's own listing, from its first include to the end of main().
sed -n '/^    #include <apps/,/^    }$/s/^    //p' "$example/../../apps/docs/tutorial.md" >tutorial.cpp
grep -q register_rule tutorial.cpp
"$cxx" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -isystem "$installed/include/troupe" tutorial.cpp

says "Configuring done" cmake -S . -B build -G Ninja -DCMAKE_PREFIX_PATH="$installed" -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror"
says my_schedule cmake --build build

# A scheme of one's own is a scheme like any other.
mine=$PWD/build/my_troupe
rule=replicas.rule.custom
says "half_life (replicas.rule.custom.name)" "$mine" explain half_life
says "option replicas.rule.custom.values.limit: half-lives (3; from 0)" "$mine" explain half_life_limited
says "rule half_life" "$mine" plan half_life.textproto
says "% of the test data" "$mine" sim half_life.textproto -q
says "% of the test data" "$mine" run half_life.textproto -q --set stop.epochs=1
says "half_life  samples" "$mine" compare half_life.textproto -q --set stop.epochs=1 --vary $rule.values.half_life=2,16 --out compared
says "half_life  " "$mine" compare half_life.textproto -q --set stop.epochs=1 --vary replicas.rule=asgd,custom --out builtin
grep -q "^rule=half_life," builtin/compare.csv && ! grep -q custom builtin/compare.csv && ! grep -q custom builtin/curves.csv
expect 2 'did you mean "half_life"?' "$mine" sim half_life.textproto --set $rule.name=halflife
expect 2 'half_life has no option "halflife"; it has half_life' "$mine" sim half_life.textproto --set $rule.values.halflife=2
expect 2 '"half_life" has not been registered' "$installed/bin/troupe" sim half_life.textproto

for name in half_life half_life_limited; do
  says "optimizer.rule momentum, bit for bit" "$mine" conformance $name --value half_life=4
  grep -c holds said | grep -qx 6
done
expect 0 "is 7, the bound 7" "$mine" conformance half_life_limited --value half_life=4 --value limit=2 --bound 7
# So is a weight policy, and so is a schedule.
[ "$(wc -l <my_policy.cpp)" -le 100 ] && [ "$(wc -l <my_schedule.cpp)" -le 100 ]
mine=$PWD/build/my_policy
pipe=(teacher-mlp --set pipeline.stages=3 --set stop.updates=40)
own=("${pipe[@]}" --set pipeline.weights.custom.name=fading_trust)
trust=pipeline.weights.custom.values.trust
sha() { sed -nE 's/.*"weights_sha256": *"([0-9a-f]+)".*/\1/p' "$1/summary.json"; }
says "fading_trust (pipeline.weights.custom.name)" "$mine" explain fading_trust
says "pipeline.weights.custom.name=fading_trust" "$mine" sim --help
says "option pipeline.weights.custom.values.trust: " "$mine" explain fading_trust
says "weights fading_trust, 3 stages" "$mine" plan "${own[@]}"
expect 2 "trust: 2 does not do; it is from 0 to 1" "$mine" config validate "${own[@]}" --set $trust=2
expect 2 'did you mean "fading_trust"?' "$mine" sim "${own[@]}" --set pipeline.weights.custom.name=fading_thrust
expect 2 "it is from 0 to 1" "$mine" sim "${own[@]}" --set $trust=-1
says "fading_trust " "$mine" compare "${own[@]}" -q --vary pipeline.weights=custom,stash --out trusts
says "0.5 " "$mine" compare "${own[@]}" -q --vary $trust=0.5,0.9 --out trust
# All of the prediction is spectrain, none of it is stash, bit for bit.
for pair in 1:spectrain 0:stash; do
  says "done" "$mine" sim "${own[@]}" -q --set $trust="${pair%:*}" --out own-"${pair%:*}"
  says "done" "$mine" sim "${pipe[@]}" -q --set pipeline.weights="${pair#*:}" --out "${pair#*:}"
  [ -n "$(sha "${pair#*:}")" ] && [ "$(sha own-"${pair%:*}")" = "$(sha "${pair#*:}")" ]
done
says "predicts" "$mine" conformance fading_trust --value trust=0.5 --bound 6
grep -c holds said | grep -qx 5

mine=$PWD/build/my_schedule
schedule=pipeline.schedule.custom
own=("${pipe[@]}" --set $schedule.name=eager_one_f_one_b)
says "picture: 4 stages" "$mine" explain eager_one_f_one_b
says "eager_one_f_one_b, weights latest, 3 stages" "$mine" plan "${own[@]}" --set pipeline.weights=latest
expect 2 "more: 65 does not do; it is from 0 to 64" "$mine" config validate "${own[@]}" --set $schedule.values.more=65
says "done" "$mine" run "${own[@]}" -q --set $schedule.values.more=3 --set pipeline.weights=spectrain
says "done" "$mine" sim "${own[@]}" -q --set $schedule.values.more=0 --out none-more
says "done" "$mine" sim "${pipe[@]}" -q --set pipeline.schedule=async_one_f_one_b --out known
[ -n "$(sha known)" ] && [ "$(sha none-more)" = "$(sha known)" ]
says "async_one_f_one_b " "$mine" compare "${own[@]}" -q --vary pipeline.schedule=custom,async_one_f_one_b --out schedules
says "each forward, backward and" "$mine" conformance eager_one_f_one_b --value more=2
grep -c holds said | grep -qx 6
expect 1 "BROKEN" "$mine" conformance eager_one_f_one_b --value more=9 --bound 7

# An optimizer of one's own: explained, planned, predicted along, compared, and refused where it does not fit.
mine=$PWD/build/my_optimizer
small=(--set data.glyphs.limit=2000 --set data.glyphs.test_limit=200 --set stop.epochs=1 --set optimizer.learning_rate=0.02)
aggmo=(--set optimizer.custom.name=aggmo)
says "aggmo (optimizer.custom.name)" "$mine" explain aggmo
says "option optimizer.custom.values.a: how much faster each velocity fades than the next (0.1;" "$mine" explain aggmo
says "optimizer.custom.name=aggmo" "$mine" run --help
says "optimizer  aggmo: the mean of three velocities" "$mine" plan glyphs-mlp "${aggmo[@]}"
says "ok: glyphs-mlp can be run" "$mine" config validate glyphs-mlp "${aggmo[@]}"
says "% of the test data" "$mine" sim glyphs-mlp -q "${small[@]}" "${aggmo[@]}" --set pipeline.weights=spectrain
says "% of the test data" "$mine" run glyphs-mlp -q "${small[@]}" "${aggmo[@]}" --set replicas.count=2 \
  --set replicas.exchange.averaging.state=averaged
says "aggmo " "$mine" compare glyphs-mlp -q "${small[@]}" "${aggmo[@]}" --vary optimizer.rule=momentum,custom --out optimizers
expect 2 'did you mean "aggmo"?' "$mine" config validate glyphs-mlp --set optimizer.custom.name=agmo
expect 2 'optimizer.custom.values.a: 2 does not do; it is from 0.001 to 1' \
  "$mine" config validate glyphs-mlp "${aggmo[@]}" --set optimizer.custom.values.a=2
expect 2 'geometric goes with optimizer.rule momentum, adam, adamw; it is aggmo' \
  "$mine" config validate glyphs-mlp "${aggmo[@]}" --set pipeline.weights=geometric

# A layer of one's own, in two stages.
mine=$PWD/build/my_layer
says "swish (model.layers.layer.custom.name)" "$mine" explain swish
says "% of the test data" "$mine" sim swish.textproto -q
expect 2 'swish has no option "beta"' "$mine" config validate <(sed 's/name: "swish" }/name: "swish" values { key: "beta" value: 1 } }/' swish.textproto)
expect 2 '"swish" has not been registered' "$installed/bin/troupe" sim swish.textproto

# Data of one's own.
mine=$PWD/build/my_data
spirals=(--set data.custom.name=two_spirals --set data.custom.values.samples=2000)
says "points in the plane" "$mine" explain two_spirals
says "% of the test data" "$mine" run glyphs-mlp -q "${spirals[@]}" --set stop.epochs=5
expect 2 'data.custom.values.noise: 2 does not do; it is from 0 to 1' \
  "$mine" config validate glyphs-mlp "${spirals[@]}" --set data.custom.values.noise=2
expect 2 'data.custom.name: "two_spirals" has not been registered' "$installed/bin/troupe" run glyphs-mlp "${spirals[@]}"

# An exchange of one's own, without servers: it is evaluated at the mean of all, and bears deaths.
mine=$PWD/build/my_exchange
gossip=(--set replicas.count=4 --set replicas.exchange.custom.name=gosgd)
likely=replicas.exchange.custom.values.probability
says "gosgd (replicas.exchange.custom.name)" "$mine" explain gosgd
says "option $likely: of telling somebody after a step (0.2; from" "$mine" explain gosgd
says "replicas   4 by gosgd" "$mine" plan glyphs-mlp "${gossip[@]}"
says "% of the test data" "$mine" sim glyphs-mlp -q "${small[@]}" "${gossip[@]}"
says "% of the test data" "$mine" run glyphs-mlp -q "${small[@]}" "${gossip[@]}" --set pipeline.weights=spectrain
says "gosgd " "$mine" compare glyphs-mlp -q "${small[@]}" "${gossip[@]}" --vary replicas.exchange=averaging,custom --out exchanges
expect 2 "probability: 2 does not do; it is from 0 to 1" "$mine" config validate glyphs-mlp "${gossip[@]}" --set $likely=2
expect 2 'did you mean "gosgd"?' "$mine" sim glyphs-mlp --set replicas.count=2 --set replicas.exchange.custom.name=gosdg
expect 2 '"gosgd" has not been registered' "$installed/bin/troupe" sim glyphs-mlp "${gossip[@]}"
says "replicas died in 16 runs, and 16 went on" "$mine" conformance gosgd --value probability=0.5
grep -c holds said | grep -qx 4  # "identity" does not apply to it

# A machine of one's own that joins the cast: it hears the losses and steers the rate.
mine=$PWD/build/my_extension
plateau=(--set extension.custom.name=plateau --set extension.custom.values.window=6)
says "plateau (extension.custom.name)" "$mine" explain plateau
says "extension  plateau: halves the learning rate" "$mine" plan glyphs-mlp "${plateau[@]}"
for verb in run sim; do
  says "plateau: the loss is" "$mine" $verb glyphs-mlp "${small[@]}" "${plateau[@]}" --set extension.custom.values.least=1 --out steered-$verb
done
grep -q '"step":15,.*"rate":0.01,' steered-sim/metrics.jsonl  # 0.02, halved after 12 losses
says "% of the test data" "$mine" run glyphs-mlp -q "${small[@]}" "${plateau[@]}" --set replicas.count=2
expect 2 "window: 0 does not do" "$mine" config validate glyphs-mlp "${plateau[@]}" --set extension.custom.values.window=0
expect 2 'did you mean "plateau"?' "$mine" sim glyphs-mlp --set extension.custom.name=platau

# A way to train modules of one's own: no error comes from a later one, so that none waits.
mine=$PWD/build/my_module
modules=(glyphs-mlp "${small[@]}" --set pipeline.stages=3 --set pipeline.schedule=sequential
  --set decoupled.custom.name=target_projection --set model.mlp.activation=tanh)
says "target_projection (decoupled.custom.name)" "$mine" explain target_projection
says "option decoupled.custom.values.strength: multiplies the signal (1; from 0 to 1000)" "$mine" explain target_projection
says "decoupled  target_projection" "$mine" plan "${modules[@]}"
says "% of the test data" "$mine" sim "${modules[@]}" -q --out projected
says "% of the test data" "$mine" run "${modules[@]}" -q --out projected-run
[ -n "$(sha projected)" ] && [ "$(sha projected)" = "$(sha projected-run)" ]
expect 2 "strength: -1 does not do" "$mine" config validate "${modules[@]}" --set decoupled.custom.values.strength=-1
expect 2 'did you mean "target_projection"?' "$mine" sim "${modules[@]}" --set decoupled.custom.name=target_projektion
expect 2 '"target_projection" has not been registered' "$installed/bin/troupe" sim "${modules[@]}"

# A program of one's own that trains on its own data and takes the weights.
says "(0, 0.5) is on circle 0, (0, 1) on circle 1" build/my_program
for line in "losses heard" "interrupted" "dense1.weight: 32 numbers" "dense2.bias: 2 numbers"; do
  grep -qF "$line" said
done
for example in my_*.cpp; do
  [ "$(wc -l <"$example")" -le 100 ]
done

# The tutorial's commands, and what it shows of their output.
"$python" "$tools/check_docs.py" "$installed/bin/troupe" --only tutorial --mine "$PWD/build/my_troupe"
echo "installed, built and run in $work"
