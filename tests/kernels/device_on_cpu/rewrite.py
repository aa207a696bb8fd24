#!/usr/bin/env python3
"""rewrite.py --to DIR --root ROOT [--instead NAME=FILE] FILE...: CUDA C++ becomes C++ that calls device.hpp.

What is no C++ is taken out of each file, into DIR under its path below ROOT: launches, __shared__ and __launch_bounds__.
A .cu becomes a .cu.cpp. --instead takes FILE for the file called NAME. Files that stay the same are left alone.
"""
import argparse
import pathlib
import re

CLOSING = {"(": ")", "<": ">", "{": "}"}


def end_of(text, start):
    """Behind the bracket that closes the one at `start`."""
    opening, closing, depth = text[start], CLOSING[text[start]], 0
    for i in range(start, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if depth == 0:
            return i + 1
    raise ValueError(f"nothing closes {text[start:start + 40]!r}")


def kernel_before(text, at):
    """Where the expression begins that ends at `at`: a name, with arguments of a template or without."""
    start = len(text[:at].rstrip())
    if text[start - 1] == ">":
        depth = 0
        while True:
            start -= 1
            depth += (text[start] == ">") - (text[start] == "<")
            if depth == 0:
                break
    while re.match(r"[\w:]", text[start - 1]):
        start -= 1
    return start


def launches(text, kernels):
    while (at := text.find("<<<")) >= 0:
        start = kernel_before(text, at)
        kernel = text[start:at].strip()
        name = re.match(r"[\w:]+", kernel)[0]
        middle = text.index(">>>", at)
        opening = middle + 3 + re.match(r"\s*", text[middle + 3:]).end()
        end = end_of(text, opening)
        arguments = text[opening + 1:end - 1]
        # A variable may have been given to cudaFuncSetAttribute; of a template only the call knows which one it is.
        address = "nullptr" if name in kernels else f"reinterpret_cast<const void*>({kernel})"
        call = f"[=](const auto&... each_) {{ {kernel}(each_...); }}"
        text = (f"{text[:start]}::device_on_cpu::Launch(\"{name}\", {address}, {text[at + 3:middle]})"
                f".run({call}{', ' if arguments.strip() else ''}{arguments}){text[end:]}")
    return text


def bounds(text):
    """The bound of a launch is looked at where the kernel begins."""
    for match in reversed(list(re.finditer(r"__launch_bounds__(?=\()", text))):
        end = end_of(text, match.end())
        body = text.index("{", end_of(text, text.index("(", end)))
        text = f"{text[:body + 1]} ::device_on_cpu::launch_bounds{text[match.end():end]};{text[body + 1:]}"
    return text


def rewritten(text, path, kernels):
    text = bounds(launches(text, kernels))
    text = re.sub(r"extern\s+__shared__\s+([\w:]+)\s+(\w+)\[\];",
                  r"\1* const \2 = ::device_on_cpu::dynamic_shared<\1>();", text)
    text = re.sub(r"__shared__\s+([\w:]+)\s+(\w+)((?:\[[^\]]*\])*);",
                  r"auto& \2 = ::device_on_cpu::shared<\1\3>();", text)
    return f'#include <cuda_runtime.h>\n#line 1 "{path}"\n{text}'


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=pathlib.Path, required=True)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--instead", action="append", default=[])
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    instead = dict(each.split("=", 1) for each in options.instead)
    texts = {path: pathlib.Path(instead.get(path.name, path)).read_text() for path in options.files}
    kernels = set()
    for text in texts.values():
        for match in re.finditer(r"__global__\s+void\s+(__launch_bounds__(?=\())?", text):
            begin = end_of(text, match.end()) if match[1] else match.end()
            kernels.add(re.match(r"\s*(\w+)", text[begin:])[1])
    for path, text in texts.items():
        to = options.to / path.resolve().relative_to(options.root.resolve())
        if to.suffix == ".cu":
            to = to.with_name(to.name + ".cpp")
        text = rewritten(text, path, kernels)
        if not to.exists() or to.read_text() != text:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(text)


if __name__ == "__main__":
    main()
