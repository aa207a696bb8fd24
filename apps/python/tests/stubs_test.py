"""What editors complete the keys of an experiment from."""

import ast
import re
from pathlib import Path

import pytest

import troupe
from troupe import _troupe

PACKAGE = Path(troupe.__file__).parent


def test_the_stubs_have_each_key_once():
    parsed = ast.parse((PACKAGE / "_keys.pyi").read_text())
    classes = {one.name: {item.target.id: ast.unparse(item.annotation) for item in one.body if isinstance(item, ast.AnnAssign)}
               for one in parsed.body if isinstance(one, ast.ClassDef)}
    for one in parsed.body:
        if isinstance(one, ast.Assign):
            types = one.value.args[1]
            classes[one.targets[0].id] = {key.value: ast.unparse(of) for key, of in zip(types.keys, types.values)}
    flat = list(classes.pop("Sets"))
    assert flat == [path for path, *_ in _troupe.schema()] and len(flat) > 300

    def group_of(path):
        named = annotation(path) if path not in ("", "data") else {"": "Keys", "data": "_Data"}[path]
        return next((name for name in re.findall(r"\w+", named) if name in classes), None)

    def annotation(path):
        parent, _, name = path.rpartition(".")
        return classes[group_of(parent)][name]

    lists = [path for path, _, is_list, *_ in _troupe.schema() if is_list]
    for path in flat:
        if path != "data" and not any(path.startswith(one + ".") for one in lists):
            assert annotation(path)
    assert "'spectrain'" in classes["_Pipeline"]["weights"] and classes["Keys"]["seed"] == "int"
    assert (PACKAGE / "py.typed").exists()


def test_a_type_checker_knows_the_keys(tmp_path):
    mypy = pytest.importorskip("mypy.api")
    (tmp_path / "mine.py").write_text(
        "import troupe\n"
        "troupe.sim('teacher-mlp', {'stop.updates': 5}, pipeline={'stages': 4, 'weights': 'stash'}, seed=3)\n"
        "troupe.Experiment(pipeline={'stagse': 4})\n"
        "troupe.run(sede=3)\n")
    said, _, _ = mypy.run([str(tmp_path / "mine.py"), "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent"])
    errors = [line for line in said.splitlines() if ": error:" in line]
    assert len(errors) == 2 and "stagse" in errors[0] and "sede" in errors[1], said


def test_data_may_be_keys():
    assert troupe.Experiment("glyphs-mlp", data={"batch_size": 7}) == troupe.Experiment("glyphs-mlp", {"data.batch_size": 7})
