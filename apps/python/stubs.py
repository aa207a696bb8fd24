"""stubs.py MODULE STUBS: writes the keys of an experiment, of the extension MODULE, as the types that troupe/runs.py names."""

import importlib.util
import keyword
import sys
from pathlib import Path


def schema_of(module: str) -> list:
    spec = importlib.util.spec_from_file_location("_troupe", module)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.schema()


def class_of(path: str) -> str:
    return "_" + "".join(part.title() for part in path.replace(".", "_").split("_")) if path else "Keys"


def type_of(path: str, kind: str, is_list: bool, names: list[str]) -> str:
    legal = f"Literal[{', '.join(map(repr, names))}]" if names else kind
    if kind == "table":
        return "Mapping[str, Any]"
    if kind in ("group", "choice"):
        legal = "Mapping[str, Any]" if is_list else (legal + " | " if names else "") + class_of(path)
    return f"Sequence[{legal}] | {legal}" if is_list else legal


def dictionary(name: str, types: dict[str, str]) -> list[str]:
    return [f'{name} = TypedDict("{name}", {{', *(f"    {key!r}: {of}," for key, of in types.items()), "}, total=False)", ""]


def stubs(schema: list) -> str:
    types = {path: (type_of(path, kind, is_list, names), doc) for path, kind, is_list, names, doc in schema}
    groups = {"": []} | {path: [] for path, kind, is_list, *_ in schema if kind in ("group", "choice") and not is_list}
    for path in types:
        parent, _, name = path.rpartition(".")
        if parent in groups:
            groups[parent].append(name)
    groups[""].remove("data")  # a parameter of its own, which takes arrays, too
    text = ["# The keys of an experiment, made from its schema.", "from typing import Any, Literal, Mapping, Sequence, TypedDict", ""]
    for path, names in groups.items():
        own = {name: types[f"{path}.{name}" if path else name] for name in names}
        if any(map(keyword.iskeyword, names)):
            text += dictionary(class_of(path), {name: repr(of) for name, (of, _) in own.items()})
        else:
            text += [f"class {class_of(path)}(TypedDict, total=False):",
                     *(f"    {name}: {of}  # {doc}" for name, (of, doc) in own.items()), *([] if names else ["    pass"]), ""]
    text += dictionary("Sets", {path: of for path, (of, _) in types.items()})
    return "\n".join(text)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(stubs(schema_of(sys.argv[1])))
