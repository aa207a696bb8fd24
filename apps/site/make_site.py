#!/usr/bin/env python3
"""Makes the sources of a site: the pages of apps/docs, and one page for each scheme of the registries.

    make_site.py PROGRAM OUT [--board DIR]

What a scheme's page says is what `troupe explain` says of it: what it does, equations, staleness, memory, paper, picture. With
--board, the folder of a `troupe board`, it also says what came of the scheme there, and draws the losses of those runs. OUT is a
new folder; `mkdocs build -f OUT/mkdocs.yml` (mkdocs-material, from the package registry) makes the site of it. Links that lead
out of the pages are followed: a page of a folder (README.md) comes along, and what is no page stands there without its link.
"""

import argparse
import csv
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Keys whose values have a page each, and what the list of pages calls them.
GROUPS = {
    "pipeline.schedule": "Schedules",
    "pipeline.weights": "Weight policies",
    "decoupled": "Decoupled modules",
    "replicas.exchange": "Exchanges",
    "replicas.rule": "Rules of servers",
    "replicas.codec": "Codecs",
    "optimizer.rule": "Optimizers",
}
# Okabe and Ito's colours, which people who see fewer colours tell apart, too.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"]


# -- pages -------------------------------------------------------------------------------------------------------------------------


def page_name(path):
    """Where a page of the tree is on the site."""
    if path == Path("README.md"):
        return Path("index.md")
    return Path(path.name) if path.parent == Path("apps/docs") else Path("tree") / path


def rewritten(path, text, wanted):
    """`text` of the page `path` with its links as the site has them. Pages that it leads to are added to `wanted`."""

    def link(match):
        words, target, heading = match[1], match[2], match[3] or ""
        if re.match(r"[a-z]+:", target) or not target:
            return match[0]
        there = (ROOT / path.parent / target).resolve()
        if not there.is_relative_to(ROOT) or not there.exists():
            sys.exit(f"{path}: the link {target} leads nowhere")
        if there.is_dir() and (there / "README.md").is_file():
            there, heading = there / "README.md", ""
        if there.suffix not in (".md", ".svg", ".png"):
            return words.strip("![]")
        other = there.relative_to(ROOT)
        wanted.add(other)
        up = "../" * (len(page_name(path).parts) - 1)
        return f"{words}({up}{page_name(other)}{heading})"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    for i in range(0, len(parts), 2):  # what is no code block
        parts[i] = re.sub(r"(!?\[[^\]]*\])\(([^)\s#]*)(#[^)\s]+)?\)", link, parts[i])
    return "".join(parts)


def copy_pages(docs):
    """The pages of apps/docs, README.md, and what these lead to."""
    wanted = {Path("README.md"), *(p.relative_to(ROOT) for p in (ROOT / "apps/docs").glob("*.md"))}
    done = set()
    while wanted - done:
        path = min(wanted - done)
        done.add(path)
        to = docs / page_name(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        source = (ROOT / path).read_bytes()
        to.write_bytes(rewritten(path, source.decode(), wanted).encode() if path.suffix == ".md" else source)
    return {page_name(path): title_of((docs / page_name(path)).read_text()) for path in done if path.suffix == ".md"}


def title_of(text):
    return re.search(r"^# (.*)$", text, re.M)[1].replace("`", "").replace("*", "")


# -- schemes -----------------------------------------------------------------------------------------------------------------------


def say(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def listed(program):
    """[(key, name, summary)] of each scheme that `troupe explain` lists."""
    group, found = None, []
    for line in say(program, "explain").splitlines():
        if not line.startswith(" "):
            group = line.strip()
        elif group in GROUPS and not line.startswith("   "):
            found.append((group, *line.split(None, 1)))
        elif group in GROUPS:  # a long summary goes on
            found[-1] = (*found[-1][:2], f"{found[-1][2]} {line.strip()}")
    return found


def explained(program, group, name):
    """What is said of one scheme: [(fact, text)] and the lines of its picture."""
    text = say(program, "explain", name)
    block = re.search(rf"^{re.escape(name)} \({re.escape(group)}\)\n((?:  .*\n?)+)", text, re.M)[1]
    # A fact begins two blanks in; what is further in belongs to it, or to a picture.
    parts, picture = [], []
    for line in block.splitlines():
        if re.match(r"  (arrows|picture)\b", line) or picture:
            picture.append(line[2:])
        elif line.startswith("    ") and parts:
            parts[-1] += " " + line.strip()
        else:
            parts.append(line.strip())
    facts = [re.match(r"([a-z][^:]{2,60}): (.*)", part) for part in parts]
    first = next((i for i, fact in enumerate(facts) if fact), len(parts))
    return [(fact[1], fact[2]) for fact in facts[first:] if fact], picture


def mentions(pages, name):
    """The pages that speak of a scheme by its name."""
    return [page for page, text in sorted(pages.items()) if f"`{name}`" in text and page.parent == Path(".")]


def chosen_by(line, group, name):
    key = {"replicas.codec": "replicas.codec.up", "optimizer.rule": "optimizer.rule"}.get(group, group)
    return any(word == f"{key}={name}" or word.startswith(f"{key}.{name}.") for word in line)


def board_lines():
    """The schemes of the board: name and settings."""
    lines = []
    for line in (ROOT / "apps/board/schemes.txt").read_text().splitlines():
        if line.startswith(" ") and lines:
            lines[-1] += line.split()
        elif line.strip() and not line.startswith("#"):
            lines.append(line.split())
    return {line[1]: line[3:] for line in lines if line[0] == "scheme"}


# -- runs --------------------------------------------------------------------------------------------------------------------------


class BoardFolder:
    """board.csv and curves.csv of a `troupe board`; nothing where there is no folder."""

    def __init__(self, folder):
        self.rows, self.curves = [], defaultdict(lambda: defaultdict(list))
        if folder:
            self.rows = list(csv.DictReader(open(Path(folder) / "board.csv", encoding="utf-8")))
            for row in csv.DictReader(open(Path(folder) / "curves.csv", encoding="utf-8")):
                if row["seed"] == "1" and row["test_loss"]:
                    point = float(row["seconds"]), float(row["test_loss"])
                    self.curves[row["network"], row["scheme"]][row["condition"]].append(point)

    def place(self, row):
        """1 for the smallest loss of a network and a condition, and of how many."""
        losses = sorted(
            float(other["test_loss"])
            for other in self.rows
            if (other["network"], other["condition"]) == (row["network"], row["condition"]) and other["test_loss"]
        )
        return losses.index(float(row["test_loss"])) + 1, len(losses)

    def table(self, scheme):
        """What came of a scheme of the board, line by line; "" where it was not run."""
        text = ""
        for row in self.rows:
            if row["scheme"] != scheme:
                continue
            if row["test_loss"]:
                place, of = self.place(row)
                sent = f"{float(row['bytes_sent']) / 2**20:.3g} MiB" if float(row["bytes_sent"]) else ""
                cells = f"{float(row['test_loss']):.4g} | {place} of {of} | {float(row['staleness_mean']):.2f} | {sent}"
            else:
                cells = f"none: {row['says'] or 'every run diverged'} | | |"
            text += f"| {row['network']} | {row['condition']} | {row['rate']} | {cells} |\n"
        head = "| network | condition | rate | loss at the end | place | staleness | sent |\n|---|---|---|---|---|---|---|\n"
        return head + text if text else ""


def ticks(low, high, count=4):
    return [low + (high - low) * i / count for i in range(count + 1)]


def drawing(title, curves):
    """An SVG of losses over seconds, a line a condition."""
    width, height, left, right, top, bottom = 640, 320, 70, 480, 40, 270
    points = [point for line in curves.values() for point in line]
    x_max = max(x for x, _ in points)
    low, high = min(y for _, y in points), min(max(y for _, y in points), 3)
    high = max(high, low + 1e-6)

    def at(x, y):
        return f"{left + x / x_max * (right - left):.1f},{bottom - (min(y, high) - low) / (high - low) * (bottom - top):.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f"<title>{title}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<path d="M{left},{top} V{bottom} H{right}" stroke="black" fill="none"/>',
    ]
    for y in ticks(low, high):
        place = at(0, y).split(",")[1]
        lines.append(f'<text x="{left - 8}" y="{place}" text-anchor="end" dominant-baseline="middle">{y:.3g}</text>')
    for x in ticks(0, x_max):
        place = at(x, low).split(",")[0]
        lines.append(f'<text x="{place}" y="{bottom + 20}" text-anchor="middle">{x:.2g}</text>')
    lines.append(f'<text x="{(left + right) / 2}" y="{bottom + 40}" text-anchor="middle">seconds of the virtual clock</text>')
    lines.append(f'<text x="{left}" y="{top - 15}">loss on the test data</text>')
    for i, (condition, line) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        lines.append(f'<polyline points="{" ".join(at(*point) for point in line)}" stroke="{colour}" stroke-width="2" fill="none"/>')
        lines.append(f'<text x="{right + 15}" y="{top + 20 * i + 10}" fill="{colour}">{condition}</text>')
    return "\n".join([*lines, "</svg>", ""])


# -- the site ----------------------------------------------------------------------------------------------------------------------


def scheme_page(program, entry, pages, board, folder):
    group, name, summary = entry
    facts, picture = explained(program, group, name)
    text = f"# {name}\n\n{summary[0].upper() + summary[1:]}.\n\nChosen by `{'replicas.codec.up' if group == 'replicas.codec' else group}={name}`.\n\n"
    if facts:
        text += "| | |\n|---|---|\n" + "".join(f"| {fact} | {said.replace('|', chr(92) + '|')} |\n" for fact, said in facts) + "\n"
    if picture:
        text += "## Picture\n\n```\n" + "\n".join(picture) + "\n```\n\n"
    runs = ""
    for scheme, line in board_lines().items():
        if not chosen_by(line, group, name) or not board.table(scheme):
            continue
        runs += f"### `{scheme}`\n\n`{' '.join(line)}`\n\n{board.table(scheme)}\n"
        for network in ("mlp", "cnn", "gpt"):
            if curves := board.curves.get((network, scheme)):
                file = f"{scheme}-{network}.svg"
                (folder / file).write_text(drawing(f"{scheme} on {network}: loss over time", curves))
                runs += f"![Loss of {scheme} on {network} over virtual seconds, under {', '.join(curves)}]({file})\n\n"
    text += "## When to use it\n\n"
    text += "What it did on the [leaderboard](../../board.md) says where it pays.\n\n" + runs if runs else (
        "It is not on the [leaderboard](../../board.md) yet.\n\n" if (folder.parents[1] / "board.md").exists() else "")
    if said := mentions(pages, name):
        text += "Pages that speak of it: " + ", ".join(f"[{title_of(pages[page])}](../../{page})" for page in said) + ".\n"
    return text


def nav_line(depth, title, page):
    quoted = title.replace('"', "'")
    return f'{"  " * depth}- "{quoted}": {page}\n'


def make(program, out, board_folder):
    docs = out / "docs"
    docs.mkdir(parents=True)
    titles = copy_pages(docs)
    pages = {page: (docs / page).read_text() for page in titles}
    board = BoardFolder(board_folder)
    entries = listed(program)
    nav = "nav:\n" + nav_line(1, titles[Path("index.md")], "index.md")
    in_order = dict.fromkeys(re.findall(r"\]\(([\w-]+\.md)", pages[Path("index.md")]))  # as README.md leads to them
    rest = sorted(str(page) for page in titles if page.parent == Path(".") and str(page) not in in_order and str(page) != "index.md")
    for page in [*in_order, *rest]:
        nav += nav_line(1, titles[Path(page)], page)
    nav += '  - "Schemes, one by one":\n'
    for group, title in GROUPS.items():
        nav += f'    - "{title}":\n'
        folder = docs / "scheme" / group
        folder.mkdir(parents=True)
        for entry in entries:
            if entry[0] == group:
                (folder / f"{entry[1]}.md").write_text(scheme_page(program, entry, pages, board, folder))
                nav += nav_line(3, entry[1], f"scheme/{group}/{entry[1]}.md")
    nav += '  - "Folders of the source":\n'
    for page in sorted(titles):
        if page.parts[0] == "tree":
            nav += nav_line(2, str(page.parent.relative_to("tree")), page)
    (out / "mkdocs.yml").write_text((ROOT / "apps/site/mkdocs.yml").read_text() + nav)
    return len(titles), len(entries)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("out", type=Path)
    parser.add_argument("--board")
    arguments = parser.parse_args()
    if arguments.out.exists():
        sys.exit(f"{arguments.out} exists already; name a new folder")
    pages, schemes = make(arguments.program, arguments.out, arguments.board)
    print(f"{pages} pages and {schemes} schemes; mkdocs build -f {arguments.out}/mkdocs.yml makes the site")


if __name__ == "__main__":
    main()
