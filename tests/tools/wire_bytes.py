#!/usr/bin/env python3
"""What `plan` says a run will send is what it counts, and that is what crosses the cable.

    wire_bytes.py --program P

Two replicas on two network namespaces (two_hosts.py) train twice, the second time with 40 updates more. What the second run has counted
more (bytes_sent of summary.json) is compared with what alpha's network card has, both ways, as the kernel counts it: so what is
sent once a run is left out. The headers of Ethernet, IP and TCP are left out, too: how many packets the kernel makes of the same bytes
depends on how busy the machine is. Law: the card has carried what was counted and at most 1 % and 6 KiB an update more, which are
headers of messages, credits and heartbeats. Where replicas wait for nobody, the last message each way may be on its way when the
run ends, so that up to two messages less come over. Needs root: exit status 4, with the reason, where namespaces cannot be made; 1 if
the law was broken.

Before, and without root: what `plan` predicts of these runs (of rings it says nothing), and of others on the virtual clock, is within 5 % of what the second run
counts more than the first (where it says "at most", no more than that).
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from cuts import await_node
from two_hosts import Machines, Skip, Typed, sh

UPDATES = (10, 50)
HEADERS = 14 + 20 + 20 + 12  # bytes of a packet: Ethernet, IPv4, TCP and its timestamps
MORE_MAX = 0.01, 6 << 10  # of what was counted, and bytes an update
TASK = ("data.teacher.train=2000 data.teacher.test=100 model.mlp.hidden=[512,512] pipeline.stages=1 stop.epochs=0 "
        "record.evaluate=false replicas.count=2")  # fmt: skip
PEERS, GOSSIP = "replicas.exchange=strom", "replicas.exchange=gossip"
SERVER, RING = "replicas.exchange=synchronous", "replicas.exchange.synchronous.reduction=ring"
UP, DOWN = "replicas.codec.up", "replicas.codec.down"
PREDICTED = 0.05
EVEN = "replicas.exchange=parameter_server replicas.rule=asgd"
MORE_CASES = [
    EVEN, f"{EVEN} replicas.count=4 pipeline.stages=3", f"{EVEN} {UP}=terngrad", f"{EVEN} {UP}.qsgd.levels=15 {DOWN}=fp16",
    f"{EVEN} replicas.exchange.parameter_server.n_push=5 replicas.exchange.parameter_server.n_fetch=2",
    "replicas.exchange=averaging replicas.exchange.averaging.period=5", "replicas.exchange=easgd", "replicas.exchange=diloco replicas.exchange.diloco.period=5",
    f"replicas.exchange=bmuf replicas.exchange.bmuf.period=5 {UP}=int8_block", "replicas.exchange=sgp replicas.count=4", f"{SERVER} {UP}=e3m0",
]  # fmt: skip
CASES = [
    # settings, the part of what is counted that crosses the cable: the servers stand on alpha, beside one of the replicas
    (f"{SERVER}", 1 / 2),
    (f"{SERVER} {UP}=int4_block {DOWN}=fp16", 1 / 2),
    (f"{SERVER} {UP}=one_bit {DOWN}=int8_block", 1 / 2),
    (f"{SERVER} {UP}.top_k.density=0.05", 1 / 2),
    (f"{RING}", 1),
    (f"{RING} {UP}.powersgd.rank=4", 1),
    (f"{GOSSIP} {UP}=one_bit", 1),
    (f"{PEERS}", 1),
]


def carried(machines):
    """Bytes that alpha's card has received and sent, without headers."""
    table = sh("ip", "netns", "exec", machines.names["alpha"], "cat", "/proc/net/dev").stdout
    numbers = [int(word) for word in table.split(machines.cards["alpha"] + ":")[1].split()[:16]]
    received, sent = numbers[:2], numbers[8:10]  # bytes, packets
    return received[0] + sent[0] - HEADERS * (received[1] + sent[1])


def measured(machines, node, settings, updates, out):
    """Bytes that a run has counted, and what the card has carried meanwhile."""
    words = " ".join(f"--set {setting}" for setting in f"{TASK} {settings} stop.updates={updates}".split())
    await_node(node)
    before = carried(machines)
    typed = Typed(machines, "alpha", f"troupe run teacher-mlp --quiet {words} --out {out} --hosts hosts --keys keys/alpha")
    try:
        if typed.wait() != 0:
            raise AssertionError(f"{settings}: {typed.text()[-500:]}")
    finally:
        typed.end()
    await_node(node)
    summary = json.loads((machines.root / "alpha" / out / "summary.json").read_text())
    return summary["bytes_sent"], carried(machines) - before


def unpredicted(program, folder, settings, number):
    """"" where the prediction holds, and what is said of it."""
    words = [word for setting in f"{TASK} model.mlp.hidden=[96,96] {settings}".split() for word in ("--set", setting)]
    more = []
    for updates in UPDATES:
        out = Path(folder) / f"predicted-{number}-{updates}"
        run = subprocess.run([program, "sim", "teacher-mlp", "--quiet", *words, "--set", f"stop.updates={updates}", "--out", out],
                             capture_output=True, text=True, timeout=120)  # fmt: skip
        if run.returncode != 0:
            return True, run.stderr.strip()
        more.append(json.loads((out / "summary.json").read_text()))
    counted = more[1]["bytes_sent"] - more[0]["bytes_sent"]
    batches = (more[1]["samples"] - more[0]["samples"]) / more[1]["experiment"]["data"]["batch_size"]
    plan = subprocess.run([program, "plan", "teacher-mlp", *words, "--set", f"stop.updates={UPDATES[1]}"], capture_output=True, text=True, timeout=120).stdout
    told = re.search(r"traffic +each replica sends (at most )?([\d,]+) bytes(?: and gets ([\d,]+))?", plan)
    if not told:
        return True, "plan predicts nothing"
    predicted = batches * sum(int(part.replace(",", "")) for part in told.groups()[1:] if part)
    share = counted / predicted
    return not (1 - PREDICTED <= share <= 1 + PREDICTED), f"{counted / 2**20:.2f} MiB counted, {share:.3f} times {told.group(1) or ''}what plan predicts"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    given = parser.parse_args()
    broken = 0
    with tempfile.TemporaryDirectory(prefix="troupe-wire-bytes-") as folder:
        for number, settings in enumerate([settings for settings, _ in CASES if RING not in settings] + MORE_CASES):
            wrong, what = unpredicted(Path(given.program).resolve(), folder, settings, number)
            broken += wrong
            print(f"{settings}: {what}{', WRONG' if wrong else ''}", flush=True)
        try:
            with Machines(folder, Path(given.program).resolve()) as machines:
                node = machines.start_node()
                try:
                    for number, (settings, part) in enumerate(CASES):
                        by_itself = settings.startswith((PEERS, GOSSIP))
                        # Of an update there is a message each way, and the last one may not cross before the end of a run: of a few
                        # short ones that counts in which it did.
                        less = max((measured(machines, node, settings, UPDATES[0], f"run-{number}-{again}") for again in range(3 if by_itself else 1)),
                                   key=lambda run: run[1])  # fmt: skip
                        more = measured(machines, node, settings, UPDATES[1], f"run-{number}-more")
                        counted, on_card = part * (more[0] - less[0]), more[1] - less[1]
                        more_max = MORE_MAX[0] * counted + MORE_MAX[1] * (UPDATES[1] - UPDATES[0])
                        late = counted / (UPDATES[1] - UPDATES[0]) if by_itself else 0
                        right = counted - late <= on_card <= counted + more_max
                        broken += not right
                        print(f"{settings}: {counted / 2**20:.2f} MiB counted, {on_card / counted:.3f} times that on the cable"
                              f"{'' if right else ', WRONG'}", flush=True)  # fmt: skip
                finally:
                    node.end()
        except Skip as why:
            print(f"skipped: {why}")
            return 1 if broken else 4
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
