#!/usr/bin/env python3
"""The site that apps/site/make_site.py writes: each scheme has a page, and each link leads somewhere.

    site_test.py PROGRAM            # the sources alone; nothing of the network is needed
    site_test.py PROGRAM --build    # by mkdocs; exit status 4 where mkdocs-material is not installed
"""

import importlib.util
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/tools"), str(ROOT / "apps/site")]
import check_docs  # noqa: E402
import make_site  # noqa: E402

BOARD = """network,condition,scheme,rate,test_loss,staleness_mean,bytes_sent,says
mlp,undisturbed,easgd,0.03,0.3034,2.97,60546816,
mlp,undisturbed,spectrain,0.01,0.2777,1.5,0,
mlp,churn,spectrain,0.01,,,0,source is lost
"""
CURVES = """network,condition,scheme,seed,updates,seconds,test_loss
mlp,undisturbed,spectrain,1,80,0.3,1.5
mlp,undisturbed,spectrain,1,160,0.6,0.4
mlp,churn,spectrain,1,80,0.3,1.6
mlp,undisturbed,spectrain,2,80,0.3,9.9
"""


def check(holds, what):
    if not holds:
        sys.exit(f"site_test: {what}")


def main():
    program = str(Path(sys.argv[1]).resolve())
    build = "--build" in sys.argv
    if build and not (importlib.util.find_spec("mkdocs") and importlib.util.find_spec("material")):
        print("skipped: mkdocs-material is not installed (pip install mkdocs-material)")
        sys.exit(4)
    with tempfile.TemporaryDirectory() as work:
        board = Path(work, "board")
        board.mkdir()
        (board / "board.csv").write_text(BOARD)
        (board / "curves.csv").write_text(CURVES)
        out = Path(work, "site")
        subprocess.run([sys.executable, ROOT / "apps/site/make_site.py", program, out, "--board", board], check=True)
        if build:
            subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", out / "mkdocs.yml"], check=True)
            check((out / "site/scheme/pipeline.weights/spectrain/index.html").is_file(), "no page of spectrain was built")
            return
        docs = out / "docs"
        broken, count = [], 0
        for page in sorted(docs.rglob("*.md")):
            count += 1
            broken += check_docs.broken_links(docs, str(page.relative_to(docs)), page.read_text())
        check(not broken, "\n".join(broken))
        nav = (out / "mkdocs.yml").read_text()
        for page in docs.rglob("*.md"):
            check(f": {page.relative_to(docs)}\n" in nav, f"{page.name} is not in the list of pages")
        schemes = list(make_site.listed(program))
        check(len(schemes) > 80 and count > 100, f"{len(schemes)} schemes and {count} pages are too few")
        for group, name, summary in schemes:
            text = (docs / "scheme" / group / f"{name}.md").read_text()
            check(summary[1:] in text and f"={name}`" in text, f"the page of {name} says too little")
            check("| source |" in text or group in ("optimizer.rule", "replicas.codec", "replicas.rule", "pipeline.schedule"),
                  f"the page of {name} names no paper")  # fmt: skip
        check("## Picture" in (docs / "scheme/pipeline.schedule/gpipe.md").read_text(), "gpipe has no picture")
        page = (docs / "scheme/pipeline.weights/spectrain.md").read_text()
        check("| mlp | undisturbed | 0.01 | 0.2777 | 1 of 2 | 1.50 |  |" in page, "spectrain's place is wrong")
        check("none: source is lost" in page, "what was lost is not told")
        check("| 2 of 2 | 2.97 | 57.7 MiB |" in (docs / "scheme/replicas.exchange/easgd.md").read_text(), "easgd's place is wrong")
        figure = xml.etree.ElementTree.parse(docs / "scheme/pipeline.weights/spectrain-mlp.svg")
        lines = figure.getroot().findall("{http://www.w3.org/2000/svg}polyline")
        check([len(line.get("points").split()) for line in lines] == [2, 1], "the figure is not of the first seed's runs")
        # A link that leads nowhere ends the script.
        try:
            make_site.rewritten(Path("apps/docs/new.md"), "[a](no-such.md)", set())
        except SystemExit as left:
            check("leads nowhere" in str(left), "a broken link is not told")
        else:
            check(False, "a broken link is passed over")


if __name__ == "__main__":
    main()
