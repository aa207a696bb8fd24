#!/usr/bin/env python3
"""Images that others have made, as a new user would train on them: a folder for each class, and nothing set but the folder.

    real_images.py --program P [--venv DIR] [--mnist DIR] [--cifar DIR] [--only WORD] [--count 5000]

The 1,797 digits of scikit-learn are written by Pillow in the pixel formats that people have: 1, 8 and 16 bits of grey, colours,
transparency, palettes; PNG, JPEG, BMP, TIFF, WebP, GIF. DIR of --mnist has MNIST's four files of the form idx, packed by gzip; DIR of
--cifar the folders train/CLASS and test/CLASS of CIFAR-10's images. Of each of these two, COUNT training images and a fifth as many
test images are taken, evenly. Troupe trains on each folder at its default settings. Where a result is below 95 %, and PyTorch is
there, it is held against a network of the same size that PyTorch trains by Adam at 0.001 on the same images (as the digits and MNIST
are, CIFAR's at 32 x 32 pixels): the check fails where it is lower by more than 2 points, or by two standard deviations of a share of
so many test images where that is more. The packages are installed into a virtual environment by pip (DIR, outside the repository);
where that cannot be, the check is skipped with the reason, with exit status 4.
"""

import argparse
import csv
import gzip
import math
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PACKAGES = ["scikit-learn", "pillow"]
SKIPPED = 4
WANTED = 0.95


def installed(folder):
    """The Python of the environment, made where it is not there yet; or a reason why not."""
    python = folder / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import sklearn, PIL"], capture_output=True).returncode == 0:
        return python, ""
    try:
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return None, f"no virtual environment: {error}"
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], capture_output=True, text=True)
    return (python, "") if done.returncode == 0 else (None, "pip cannot install the packages: " + done.stderr.strip().splitlines()[-1])


def forms():
    """name -> (ending, what Pillow makes of an array of 8-bit grey, options of save)"""
    import numpy
    from PIL import Image

    grey = Image.fromarray
    sixteen = lambda a: Image.fromarray(a.astype(numpy.uint16) * 257)
    return {
        "png-1": ("png", lambda a: grey(a).point(lambda v: 255 * (v > 127), "1"), {}),
        "png-8": ("png", grey, {}),
        "png-16": ("png", sixteen, {}),
        "png-rgb": ("png", lambda a: grey(a).convert("RGB"), {}),
        "png-rgba": ("png", lambda a: grey(a).convert("RGBA"), {}),
        "png-la": ("png", lambda a: grey(a).convert("LA"), {}),
        "png-palette": ("png", lambda a: grey(a).convert("P"), {}),
        "jpeg-8": ("jpg", grey, {"quality": 95}),
        "jpeg-rgb": ("jpg", lambda a: grey(a).convert("RGB"), {"quality": 95}),
        "bmp-8": ("bmp", grey, {}),
        "bmp-rgb": ("bmp", lambda a: grey(a).convert("RGB"), {}),
        "tiff-8": ("tif", grey, {}),
        "tiff-16": ("tif", sixteen, {}),
        "tiff-lzw": ("tif", lambda a: grey(a).convert("RGB"), {"compression": "tiff_lzw"}),
        "webp": ("webp", lambda a: grey(a).convert("RGB"), {"quality": 95}),
        "gif": ("gif", grey, {}),
    }


def write_digits(folder, form):
    import numpy
    from sklearn.datasets import load_digits

    ending, made, options = forms()[form]
    digits = load_digits()
    for i, (image, label) in enumerate(zip(digits.images, digits.target)):
        (folder / str(label)).mkdir(exist_ok=True)
        made(numpy.round(image * 255 / 16).astype(numpy.uint8)).save(folder / str(label) / f"{i:04}.{ending}", **options)


def evenly(count, wanted):
    return [i * count // wanted for i in range(min(count, wanted))]


def write_mnist(folder, source, count):
    import numpy
    from PIL import Image

    for part, name, wanted in (("train", "train", count), ("test", "t10k", count // 5)):
        read = lambda kind: gzip.decompress((source / f"{name}-{kind}-ubyte.gz").read_bytes())
        labels = numpy.frombuffer(read("labels-idx1"), numpy.uint8, offset=8)
        images = numpy.frombuffer(read("images-idx3"), numpy.uint8, offset=16).reshape(-1, 28, 28)
        for i in evenly(len(labels), wanted):
            to = folder / part / str(labels[i])
            to.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[i]).save(to / f"{i:05}.png")


def write_cifar(folder, source, count):
    for part, wanted in (("train", count), ("test", count // 5)):
        for group in sorted((source / part).iterdir()):
            files = sorted(group.iterdir())
            (folder / part / group.name).mkdir(parents=True)
            for i in evenly(len(files), wanted // 10):
                shutil.copy(files[i], folder / part / group.name)


def of_troupe(program, folder, run):
    """(accuracy, paths of test images)"""
    done = subprocess.run([program, "run", "-q", "--out", str(run), "--set", f"data.folder.path={folder}"], capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1]
    accuracy = [line for line in done.stdout.splitlines() if line.startswith("accuracy")]
    tests = subprocess.run([program, "predict", str(run)], capture_output=True, text=True, check=True).stdout.splitlines()
    return float(accuracy[0].split()[1]) / 100, {row["file"] for row in csv.DictReader(tests)}


def of_torch(folder, tests):
    """The accuracy that PyTorch reaches with two convolutions and two dense layers, or None where it is not there."""
    try:
        import torch
    except ImportError:
        return None
    import numpy
    from PIL import Image

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = sorted({path.parent.name for path in files})
    images = numpy.stack([numpy.asarray(Image.open(p).convert("RGB").resize((32, 32), Image.BILINEAR), numpy.float32) for p in files])
    x = torch.tensor(images).permute(0, 3, 1, 2)
    y = torch.tensor([names.index(path.parent.name) for path in files])
    is_test = torch.tensor([str(path) in tests for path in files])
    x = (x - x[~is_test].mean((0, 2, 3), keepdim=True)) / x[~is_test].std((0, 2, 3), keepdim=True)
    torch.manual_seed(1)
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, len(names)))
    rule = torch.optim.Adam(net.parameters())
    train_x, train_y = x[~is_test], y[~is_test]
    for _ in range(20):
        for batch in torch.randperm(len(train_y)).split(32):
            rule.zero_grad()
            nn.functional.cross_entropy(net(train_x[batch]), train_y[batch]).backward()
            rule.step()
    with torch.no_grad():
        return (net(x[is_test]).argmax(1) == y[is_test]).float().mean().item()


def judge(arguments):
    makers = {name: lambda folder, name=name: write_digits(folder, name) for name in forms()}
    if arguments.mnist:
        makers["mnist"] = lambda folder: write_mnist(folder, arguments.mnist, arguments.count)
    if arguments.cifar:
        makers["cifar10"] = lambda folder: write_cifar(folder, arguments.cifar, arguments.count)
    wrong = 0
    for name, make in makers.items():
        if arguments.only not in name:
            continue
        with tempfile.TemporaryDirectory() as here:
            folder = Path(here) / "images"
            folder.mkdir()
            make(folder)
            accuracy, tests = of_troupe(arguments.program, folder, Path(here) / "run")
            if accuracy is None:
                print(f"{name}: {tests}", flush=True)
                wrong += 1
                continue
            other = of_torch(folder, tests) if accuracy < WANTED else None
            slack = 0 if other is None else max(0.02, 2 * math.sqrt(other * (1 - other) / len(tests)))
            good = accuracy >= WANTED or (other is not None and accuracy >= other - slack)
            print(f"{name}: {100 * accuracy:.2f} % of {len(tests)} test images" + (f"; PyTorch {100 * other:.2f} %" if other is not None else "") + ("" if good else ": too few"), flush=True)
            wrong += not good
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--venv", type=Path, default=Path(tempfile.gettempdir()) / "troupe-real-tables")
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--only", default="", help="sets whose names have this")
    arguments = parser.parse_args()
    python, reason = installed(arguments.venv.absolute())
    if python is None:
        print("skipped:", reason)
        return SKIPPED
    if Path(sys.prefix).resolve() != arguments.venv.absolute().resolve():
        os.execv(python, [str(python), *sys.argv])
    return judge(arguments)


if __name__ == "__main__":
    sys.exit(main())
