#!/usr/bin/env python3
"""apps/deploy/kubernetes.yaml is what Kubernetes takes, and what it starts is a run.

    check_manifest.py PROGRAM [--root FOLDER]

The documents are validated against Kubernetes' own schemas where the package kubernetes-validate is installed (it brings them along);
it is said where it is not. Names that must agree do. Then the Job's pods are played on this machine: as many processes as it has
completions, with its command and its environment, but for the lead's name. Exit status 4: PyYAML is not installed.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS_MAX = 120
SHORTER = "--set data.glyphs.limit=2000 --set data.glyphs.test_limit=200 --set stop.updates=12".split()


def by_schema(documents):
    try:
        import kubernetes_validate
    except ImportError:
        print("kubernetes-validate is not installed: the schema is not looked at")
        return
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        print(f"{document['kind']}: as the schema of {kubernetes_validate.latest_version()} has it")


def check(what, one, other):
    if one != other:
        raise AssertionError(f"{what}: {one} and {other}")


def names_agree(service, job, container, values):
    pod = job["spec"]["template"]["spec"]
    name = job["metadata"]["name"]
    check("the Service selects the Job's pods", service["spec"]["selector"], {"job-name": name})
    check("it is headless", service["spec"]["clusterIP"], "None")
    check("the pods' subdomain is the Service", pod["subdomain"], service["metadata"]["name"])
    check("pod 0 leads", values["MASTER_ADDR"], f"{name}-0.{pod['subdomain']}")
    check("the port", values["MASTER_PORT"], str(service["spec"]["ports"][0]["port"]))
    check("all pods play at once", job["spec"]["completions"], job["spec"]["parallelism"])
    check("WORLD_SIZE", values["WORLD_SIZE"], str(job["spec"]["completions"]))
    check("completions have an index", job["spec"]["completionMode"], "Indexed")
    check("volumes", {v["name"] for v in pod["volumes"]}, {m["name"] for m in container["volumeMounts"]})


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def play(program, job, container, values, folder):
    """The exit codes of its pods, and what they say."""
    subprocess.run([program, "keys", "keys", "--hosts", "127.0.0.1"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    places = {"/keys": f"{folder}/keys/127.0.0.1", "/runs": folder}
    words = [re.sub(r"^/\w+", lambda at: places[at[0]], word) for word in container["command"]]
    check("the command", words[0], "troupe")
    values = {**os.environ, **values, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    pods = [
        subprocess.Popen(
            [program, *words[1:], *SHORTER], cwd=folder, env=dict(values, RANK=str(i)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for i in range(job["spec"]["completions"])
    ]
    said = [pod.communicate(timeout=SECONDS_MAX)[0] for pod in pods]
    if any(pod.returncode for pod in pods) or "weights" not in said[0]:
        raise AssertionError("\n".join(said))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    arguments = parser.parse_args()
    try:
        import yaml
    except ImportError:
        print("skipped: PyYAML is not installed")
        return 4
    documents = list(yaml.safe_load_all((arguments.root / "apps/deploy/kubernetes.yaml").read_text(encoding="utf-8")))
    service, job = documents
    container = job["spec"]["template"]["spec"]["containers"][0]
    values = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    try:
        by_schema(documents)
        names_agree(service, job, container, values)
        with tempfile.TemporaryDirectory() as folder:
            play(str(arguments.program.resolve()), job, container, values, folder)
    except AssertionError as wrong:
        print(wrong, file=sys.stderr)
        return 1
    print("the pods have played a run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
