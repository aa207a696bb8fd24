#!/usr/bin/env python3
"""What record.trace writes is a trace that Perfetto reads, and its times add up.

    traces.py --program P

Short runs on both clocks, in one process and in several, are traced. The files are read here, byte by byte, by what
https://perfetto.dev/docs/reference/trace-packet-proto says and by nothing of Troupe's. Laws of each:

  - a track is described before it is used, and its slices nest and end; timestamps of a sequence never go back;
  - each flow passes through two slices at least and ends in the last; each has a beginning;
  - the slices of an actor's work, messages and waiting add up to the run within 1 %, on the virtual clock to the nanosecond;
    its run is as long as summary.json says, and its stages' jobs take the shares of it that summary.json calls busy;
  - `troupe trace --ledger` has the same sums, and its --csv the same numbers;
  - an actor sends as many bytes as `troupe plan` says, within 5 %;
  - the run has made the same weights, in the same order, as without a trace; on the virtual clock a second trace has the same bytes;
  - a trace of few events keeps the newest, by the same laws.

Where Perfetto's trace_processor_shell is in $PATH or $TRACE_PROCESSOR, it reads one of them, too, and counts as many slices; its package from PyPI
brings none, as it fetches that when it is used. That package has the definitions of all fields: where it is in $TROUPE_PERFETTO_VENV, they read the
trace, know each of its fields, and count as many slices, flows and values. Else these parts are skipped, and say so. TROUPE_PERFETTO=yes installs the
package. Exit status 1: a law was broken.
"""

import argparse
import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

TEACHER = "data.teacher.train=400 data.teacher.test=100 record.weights=false stop.epochs=0 stop.updates=30 data.batch_size=20"
SCHEMES = {
    "pipeline": "pipeline.stages=4 pipeline.micro_batches=4 pipeline.schedule=async_one_f_one_b pipeline.weights=stash",
    "zero_bubble": "pipeline.stages=3 pipeline.micro_batches=5 pipeline.schedule=zb_h1 pipeline.weights=latest",
    "servers": "pipeline.stages=2 replicas.count=3 replicas.exchange=parameter_server replicas.rule=asgd clock.workers.spread=0.5",
    "faults": "pipeline.stages=1 replicas.count=3 replicas.exchange=parameter_server replicas.rule=asgd clock.faults.detection=0.00002 clock.faults.crashes.at=[0.0001] clock.faults.crashes.back=0.00003",
    "decoupled": "pipeline.stages=2 decoupled=local_loss",
}
LEDGER = ["kernel", "handling", "copy", "serialise", "queue", "wake-up", "dispatch", "bubble"]


# -- the wire format of protobuf ------------------------------------------------------------------------------------------


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of a message: integers, or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        elif tag & 7 == 1:
            value, at = int.from_bytes(data[at : at + 8], "little"), at + 8
        elif tag & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            assert len(value) == size, "a field goes on behind the file's end"
        else:
            raise AssertionError(f"a field of wire type {tag & 7}")
        yield tag >> 3, value


def packets(data):
    for number, packet in fields(data):
        assert number == 1, "something that is no packet"
        yield dict(fields(packet))


# -- a trace --------------------------------------------------------------------------------------------------------------


class Trace:
    """Tracks by number: (name, parent); slices by track: (start, end, name, category, arguments)."""

    def __init__(self, path):
        self.tracks, self.slices, self.counters = {}, defaultdict(list), defaultdict(list)
        self.flows = defaultdict(list)  # by number: (time, track, whether it ends there)
        opened, last = defaultdict(list), {}
        for packet in packets(path.read_bytes()):
            if 60 in packet:
                self.describe(dict(fields(packet[60])))
                continue
            at, sequence, event = packet[8], packet[10], list(fields(packet[11]))
            assert at >= last.get(sequence, 0), "time goes back"
            last[sequence] = at
            self.tell(at, event, opened)
        left = [self.tracks[track] for track, all_of in opened.items() if all_of]
        assert not left, f"slices without an end on {left}"
        for number, through in self.flows.items():
            ends = [i for i, one in enumerate(through) if one[2]]
            assert len(through) >= 2 and ends == [len(through) - 1], f"flow {number} passes through {len(through)} slices, ends {ends}"

    def describe(self, track):
        parent = track.get(5)
        assert parent is None or parent in self.tracks, "a track is told of before that which it is in"
        assert track[1] not in self.tracks, "a track is told of twice"
        self.tracks[track[1]] = (track[2].decode(), parent)

    def tell(self, at, event, opened):
        one = dict(event)
        track = one[11]
        assert track in self.tracks, "an event of an unknown track"
        if one[9] == 1:
            notes = (dict(fields(value)) for number, value in event if number == 4)
            arguments = {note[10].decode(): note.get(4, note.get(6)) for note in notes}
            opened[track].append((at, one[23].decode(), one[22].decode(), arguments))
            for number, value in event:
                if number in (47, 48):
                    self.flows[value].append((at, track, number == 48))
        elif one[9] == 2:
            assert opened[track], "a slice ends that has not begun"
            start, name, category, arguments = opened[track].pop()
            outer = not opened[track]
            self.slices[track].append((start, at, name, category, arguments, outer))
        else:
            assert one[9] == 4, f"an event of type {one[9]}"
            self.counters[track].append((at, one[30]))

    def path(self, track):
        name, parent = self.tracks[track]
        return (self.path(parent) if parent else ()) + (name,)

    def run(self):
        """Nanoseconds."""
        spans = {slices[0][1] - slices[0][0] for slices in self.slices.values() if slices[0][3] == "run"}
        assert len(spans) == 1, f"processes' runs are of {spans}"
        return spans.pop()

    def spent(self):
        """By (process, actor): nanoseconds by category."""
        actors = defaultdict(lambda: defaultdict(int))
        for track, slices in self.slices.items():
            path = self.path(track)
            if len(path) == 4:
                for start, end, _, category, _, outer in slices:
                    actors[path[1:3]][category] += (end - start) * outer
        return actors

    def count(self):
        return sum(map(len, self.slices.values()))


# -- runs -----------------------------------------------------------------------------------------------------------------


class Broken(Exception):
    pass


def check(sound, what):
    if not sound:
        raise Broken(what)


class Runs:
    def __init__(self, program, folder):
        self.program, self.folder = program, Path(folder)

    def troupe(self, *words):
        said = subprocess.run([self.program, *words], cwd=self.folder, capture_output=True, text=True, timeout=120)
        check(said.returncode == 0, f"troupe {' '.join(words)}: {said.returncode}, {said.stderr[-600:]}")
        return said.stdout

    def run(self, verb, name, settings, *more):
        return self.run_of("teacher-mlp", verb, name, f"{TEACHER} {settings}", *more)

    def run_of(self, preset, verb, name, settings, *more):
        words = [word for setting in settings.split() for word in ("--set", setting)]
        self.troupe(verb, preset, "--quiet", *words, "--out", name, *more)
        return json.loads((self.folder / name / "summary.json").read_text())

    def trace_of(self, name):
        try:
            return Trace(self.folder / name / "trace.pftrace")
        except AssertionError as error:
            raise Broken(f"{name}: {error}") from error

    def check_times(self, name, summary, exact, whole=True):
        """The laws of sums; the trace."""
        trace = self.trace_of(name)
        run = trace.run()
        if whole:
            check(abs(run / 1e9 - summary["seconds"]) <= (1e-8 if exact else 0.01 * summary["seconds"] + 1e-3),
                  f"{name}: {run / 1e9} s were traced, of {summary['seconds']}")  # fmt: skip
        spent = trace.spent()
        for actor, parts in spent.items():
            check(abs(sum(parts.values()) - run) <= (0 if exact else 0.01 * run), f"{name}: {actor} has {sum(parts.values())} ns of {run}: {dict(parts)}")
        self.check_ledger(name, spent, run)
        for path in map(trace.path, trace.slices):
            check(len(path) in (2, 3, 4), f"{name}: a track at {path}")
        return trace

    def check_ledger(self, name, spent, run):
        rows = [line.split("  ") for line in self.troupe("trace", name, "--ledger").splitlines()]
        cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
        head = next(i for i, row in enumerate(cells) if row[:2] == ["process", "actor"])
        check(cells[head] == ["process", "actor", *LEDGER, "sum", "bytes sent"], f"{name}: the ledger has {cells[head]}")
        self.troupe("trace", name, "--csv", f"{name}.csv")
        with open(self.folder / f"{name}.csv", encoding="utf-8") as file:
            check(list(csv.reader(file)) == cells[head:-1], f"{name}: the table of --csv is another one")
        told = {tuple(row[:2]): [float(cell) for cell in row[2:-1]] for row in cells[head + 1 :]}
        self.sent = {row[1]: int(row[-1]) for row in cells[head + 1 : -1]}
        total = told.pop(("all", f"{len(spent)} actors"))
        check(set(told) == set(spent), f"{name}: the ledger is of {sorted(told)}, the trace of {sorted(spent)}")
        for actor, numbers in told.items():
            parts = [spent[actor][part] / 1e9 for part in LEDGER]
            check(all(abs(x - y) < 2e-6 for x, y in zip(numbers, [*parts, sum(parts)])), f"{name}: {actor}: {numbers} in the ledger, {parts} in the trace")
            check(abs(numbers[-1] - run / 1e9) <= 0.02 * run / 1e9 + 1e-6, f"{name}: {actor}: {numbers[-1]} s of {run / 1e9}")
        check(abs(total[-1] - sum(row[-1] for row in told.values())) < 1e-5 * len(told) + 1e-5, f"{name}: the sums do not add up")


def planned(runs):
    """Bytes by actor, as they are planned and as they were sent. At its end an asynchronous run has sent for mini-batches that no update waits for."""
    for name, settings in {
        "stages": SCHEMES["pipeline"],
        "turn": "pipeline.stages=2 pipeline.schedule=zb_v pipeline.micro_batches=4 pipeline.weights=latest",
        "synchronous": "pipeline.stages=2 replicas.count=2 replicas.exchange=synchronous replicas.codec.up=int8_block",
        "servers": "pipeline.stages=2 replicas.count=2 replicas.exchange=parameter_server",
    }.items():
        more = f"{settings} stop.updates=400 record.trace=true"
        words = [word for setting in f"{TEACHER} {more}".split() for word in ("--set", setting)]
        rows = runs.troupe("plan", "teacher-mlp", *words).split("\nsent ")[1].splitlines()[1:]
        plan = {}
        for row in rows:
            if not row.startswith("  "):
                break
            actor, number = row.split()
            plan[actor] = int(number.replace(",", ""))
        summary = runs.run("sim", f"planned-{name}", more)
        runs.check_times(f"planned-{name}", summary, exact=True)
        batches = 400 / (2 if name == "servers" else 1)  # of each replica
        check(len(plan) > 2, f"{name}: the plan is of {plan}")
        for actor, number in plan.items():
            told = {who: sent for who, sent in runs.sent.items() if who == actor or who in (actor.replace("-", "-0.", 1), actor + "-0")}
            check(len(told) == 1, f"{name}: {actor} is one of {sorted(runs.sent)}")
            for who, sent in told.items():
                check(abs(sent / batches - number) <= 0.05 * number, f"{name}: {who} sends {sent / batches} bytes for a mini-batch, {number} were planned")
        print(f"{name}: bytes of {len(plan)} actors as planned", flush=True)


def check_busy(trace, summary, name, exact):
    """What the recorder has added up by another way: what share of the run a stage was busy, with what runs on its thread, and what it waited for."""
    busy, idle = defaultdict(int), defaultdict(int)
    for track, slices in trace.slices.items():
        path = trace.path(track)
        for start, end, what, _, arguments, _ in slices:
            if path[-1] == "work" and what != "other":
                busy[f"stage-{arguments['chunk']}"] += end - start
            elif path[-1] == "waiting" and path[-2].startswith("stage-"):
                idle[path[-2], what] += end - start
    seconds = summary["seconds"]
    check(set(busy) == set(summary["busy"]), f"{name}: {sorted(busy)} have worked, of {sorted(summary['busy'])}")
    for stage, share in summary["busy"].items():
        told = share * seconds
        check(busy[stage] / 1e9 <= told * 1.000001 + 1e-6 and (not exact or busy[stage] / 1e9 >= told * 0.999999 - 1e-6),
              f"{name}: stage {stage} has worked for {busy[stage] / 1e9} s, and was busy for {told}")  # fmt: skip
        for want, part in summary["idle"][stage].items() if exact else ():
            check(abs(idle[stage, want] / 1e9 - part * seconds) < 1e-6, f"{name}: stage {stage} has waited {idle[stage, want] / 1e9} s for {want}, {part * seconds} says the summary")


def virtual(runs, name, settings):
    plain = runs.run("sim", f"{name}-plain", settings)
    summary = runs.run("sim", name, f"{settings} record.trace=true")
    runs.run("sim", f"{name}-again", f"{settings} record.trace=true")
    for key in ("weights_sha256", "order_sha256", "test_loss", "seconds", "bytes_sent"):
        check(plain[key] == summary[key], f"{name}: {key} is {summary[key]} with a trace, {plain[key]} without")
    first, second = ((runs.folder / which / "trace.pftrace").read_bytes() for which in (name, f"{name}-again"))
    check(first == second, f"{name}: a second trace has other bytes")
    trace = runs.check_times(name, summary, exact=True)
    if name in ("pipeline", "zero_bubble"):
        check_busy(trace, summary, name, exact=True)
    check(name != "faults" or summary["faults"]["crashes"] == 1, "faults: nothing has crashed")
    check(trace.flows or name == "decoupled", f"{name}: there are no flows")
    return trace, summary


def check_pipeline(trace, summary):
    """Four stages, four micro-batches, 30 updates: what is known of the picture beforehand."""
    jobs = defaultdict(int)
    for track, slices in trace.slices.items():
        if trace.path(track)[-1] == "work":
            for _, _, name, _, arguments, _ in slices:
                jobs[name] += 1
                check(name not in ("forward", "backward") or "version" in arguments, "a pass does not know the version that it has read")
    check(jobs["forward"] == jobs["backward"] == 30 * 4 * 4 and jobs["update"] == 30 * 4, f"the jobs are {dict(jobs)}")
    through = sorted(len(flow) for flow in trace.flows.values())
    # Micro-batches: the source, four forwards and four backwards. Gradients: four backwards, an update, and who applied it.
    check(through.count(9) == 30 * 4 and len(through) == 30 * 4 + 30 * 4, f"flows pass through {sorted(set(through))} slices")
    names = {trace.path(track)[-1] for track in trace.counters}
    check({"staleness", "stashed bytes", "bytes sent"} <= names, f"there are counters {names}")
    staleness = {value for track, values in trace.counters.items() if trace.path(track)[-1] == "staleness" for _, value in values}
    check(max(staleness) == max(shard["max"] for shard in summary["staleness"].values()) > 0, f"the staleness is {staleness}")
    kept = [values[-1][1] for track, values in trace.counters.items() if trace.path(track)[-1] == "stashed bytes"]
    check(kept and all(value == 0 for value in kept), f"stages keep {kept} bytes at the end")


def copying(runs):
    """A network whose layers copy: on the real clock its trace has the time of that, on the virtual one equal bytes, and the modelled times alone."""
    settings = "data.glyphs.limit=640 data.glyphs.test_limit=64 record.trace=true"
    for verb, name in (("sim", "copying"), ("sim", "copying-again"), ("run", "copying-real")):
        runs.run_of("glyphs-unet", verb, name, settings)
    first, second = ((runs.folder / name / "trace.pftrace").read_bytes() for name in ("copying", "copying-again"))
    check(first == second, "copying: a second trace has other bytes")
    copies = [sum(parts["copy"] for parts in runs.trace_of(name).spent().values()) for name in ("copying", "copying-real")]
    check(copies[0] == 0 < copies[1], f"copying: {copies} ns are copies, on the virtual clock and on the real one")


def real(runs):
    settings = SCHEMES["pipeline"] + " stop.updates=120"
    plain = runs.run("run", "real-plain", settings)
    summary = runs.run("run", "real", f"{settings} record.trace=true")
    check(plain["weights_sha256"] == summary["weights_sha256"], "real: other weights with a trace")
    trace = runs.check_times("real", summary, exact=False)
    check_busy(trace, summary, "real", exact=False)
    shards = [parts for (_, actor), parts in trace.spent().items() if actor.startswith("shard-")]
    check(shards and all(parts["dispatch"] + parts["wake-up"] + parts["queue"] > 0 for parts in shards), f"real: no message has waited at a shard: {shards}")
    cut = runs.run("run", "few", f"{settings} record.trace=true record.trace_events=2000")
    short = runs.check_times("few", cut, exact=False, whole=False)
    check(short.run() < 0.9 * trace.run() and 500 < short.count() < 2 * 2000 + 512 * 40, f"few: {short.count()} slices of {short.run()} ns")


def resumed(runs):
    """A run that goes on has a trace of what it does from then on, and ends as in one piece."""
    settings = "pipeline.stages=2 record.trace=true record.checkpoint.every=10 record.checkpoint.keep=9"
    whole = runs.run("sim", "whole", settings)
    shutil.copytree(runs.folder / "whole", runs.folder / "again")
    for gone in ("checkpoints/step-30", "checkpoints/step-20"):
        shutil.rmtree(runs.folder / "again" / gone)
    runs.troupe("sim", "--resume", "again", "--quiet")
    summary = json.loads((runs.folder / "again" / "summary.json").read_text())
    check(summary["weights_sha256"] == whole["weights_sha256"], "again: other weights than in one piece")
    trace = runs.check_times("again", summary, exact=True, whole=False)
    check(0.5 < trace.run() / 1e9 / summary["seconds"] < 0.8, f"again: {trace.run()} ns were traced, a third of {summary['seconds']} s was before")
    check((runs.folder / "again" / "checkpoints" / "step-30" / "optimizer.safetensors").exists(), "again: the optimizer is not in the checkpoint")
    shutil.rmtree(runs.folder / "again" / "checkpoints" / "step-30")
    (runs.folder / "again" / "trace.pftrace").unlink()
    (runs.folder / "again" / "trace.pftrace").mkdir()
    said = subprocess.run([runs.program, "sim", "--resume", "again", "--quiet"], cwd=runs.folder, capture_output=True, text=True, timeout=60)
    summary = json.loads((runs.folder / "again" / "summary.json").read_text())
    check(said.returncode == 5 and summary["outcome"] == "lost" and "trace.pftrace" in summary["cause"],
          f"again: a trace that cannot be written: {said}, {summary['outcome']}: {summary.get('cause')}")  # fmt: skip


def several(runs):
    settings = "pipeline.stages=2 replicas.count=2 replicas.exchange=synchronous record.trace=true"
    summary = runs.run("run", "several", settings, "--processes", "2")
    trace = runs.check_times("several", summary, exact=False)
    processes = {path[1] for path in map(trace.path, trace.slices) if len(path) > 1}
    check(len(processes) == 2, f"several: the processes are {processes}")
    crossed = {category for slices in trace.slices.values() for _, _, _, category, _, _ in slices}
    check("serialise" in crossed, f"several: categories {crossed}")


def without(runs):
    runs.run("sim", "without", "record.trace=false")
    said = subprocess.run([runs.program, "trace", "without"], cwd=runs.folder, capture_output=True, text=True, timeout=60)
    check(said.returncode == 3 and "record.trace=true" in said.stderr and "order.log" in said.stderr, f"without a trace: {said}")


def processor(runs, name, trace):
    shell = os.environ.get("TRACE_PROCESSOR") or shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if not shell:
        print("skipped: Perfetto's trace_processor_shell is not here, so no other program has read the traces")
        return
    query = runs.folder / "query.sql"
    query.write_text("select (select count(*) from slice), (select count(*) from stats where severity = 'error' and value > 0);\n")
    said = subprocess.run([shell, "-q", query, runs.folder / name / "trace.pftrace"], capture_output=True, text=True, timeout=60)
    rows = list(csv.reader(io.StringIO(said.stdout)))
    check(said.returncode == 0 and [int(x) for x in rows[-1]] == [trace.count(), 0], f"{shell} says {said}; there are {trace.count()} slices")


READ = """
import json, sys
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
def unknown(message):
    of = [one for field, value in message.ListFields() if field.message_type for one in (value if field.is_repeated else [value])]
    return len(UnknownFieldSet(message)) + sum(map(unknown, of))
trace = Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
events = [packet.track_event for packet in trace.packet if packet.HasField("track_event")]
print(json.dumps({"unknown": unknown(trace), "tracks": sum(packet.HasField("track_descriptor") for packet in trace.packet),
                  "slices": sum(event.type == TrackEvent.TYPE_SLICE_BEGIN for event in events),
                  "values": sum(event.type == TrackEvent.TYPE_COUNTER for event in events),
                  "flows": sum(len(event.terminating_flow_ids) for event in events)}))
"""


def definitions(runs, name, trace):
    """The trace as Perfetto's own definitions of its fields understand it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    venv = Path(os.environ.get("TROUPE_PERFETTO_VENV") or cache / "troupe" / ("perfetto-%d.%d" % sys.version_info[:2]))
    python = venv / "bin/python"
    if os.environ.get("TROUPE_PERFETTO") == "yes" and not python.exists():
        for words in ([sys.executable, "-m", "venv", venv], [venv / "bin/pip", "install", "-q", "perfetto"]):
            subprocess.run(words)
    if not python.exists() or subprocess.run([python, "-c", "import perfetto.protos"], capture_output=True).returncode != 0:
        print(f"skipped: the package perfetto is not in {venv} (TROUPE_PERFETTO=yes installs it), so its definitions have read nothing")
        return
    said = subprocess.run([python, "-c", READ, runs.folder / name / "trace.pftrace"], capture_output=True, text=True, timeout=120)
    check(said.returncode == 0, f"{name}: Perfetto's definitions do not read it: {said.stderr[-600:]}")
    there = {"unknown": 0, "tracks": len(trace.tracks), "slices": trace.count(), "values": sum(map(len, trace.counters.values())), "flows": len(trace.flows)}
    check(json.loads(said.stdout) == there, f"{name}: Perfetto's definitions read {said.stdout}, there are {there}")
    print(f"Perfetto's definitions read {there}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    given = parser.parse_args()
    os.environ["TROUPE_RUNS"] = "none"
    with tempfile.TemporaryDirectory(prefix="troupe-traces-") as folder:
        runs = Runs(Path(given.program).resolve(), folder)
        try:
            for name, settings in SCHEMES.items():
                trace, summary = virtual(runs, name, settings)
                if name == "pipeline":
                    check_pipeline(trace, summary)
                    processor(runs, name, trace)
                    definitions(runs, name, trace)
                print(f"{name}: {trace.count()} slices, {len(trace.flows)} flows, {summary['seconds']:.6f} s", flush=True)
            planned(runs)
            copying(runs)
            real(runs)
            resumed(runs)
            several(runs)
            without(runs)
        except Broken as why:
            print(f"broken: {why}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
