#!/usr/bin/env python3
"""When apps/start.sh compiles CUDA: tried with stand-ins for cmake, dpkg-query and nvidia-smi, which note how they are called."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CMAKE = """#!/bin/sh
echo "cmake $*" >> "$CALLS"
mkdir -p build/release
touch build/release/build.ninja
case "$*" in *-DTROUPE_CUDA=*) echo "TROUPE_CUDA:STRING=${*##*=}" > build/release/CMakeCache.txt ;; esac
printf '#!/bin/sh\\necho "troupe $*" >> "$CALLS"\\n' > build/release/troupe
chmod +x build/release/troupe
"""


class Start(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "apps").mkdir()
        for name in ("start.sh", "setup.sh"):
            shutil.copy(ROOT / "apps" / name, self.folder / "apps")
        (self.folder / "bin").mkdir()
        self.stand_in("cmake", CMAKE)
        self.stand_in("dpkg-query", "#!/bin/sh\necho install ok installed\n")
        self.stand_in("nvidia-smi", "#!/bin/sh\nexit 1\n")

    def stand_in(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def start(self, *arguments):
        """What was called, a line each."""
        calls = self.folder / "calls"
        calls.write_text("", encoding="utf-8")
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        subprocess.run([self.folder / "apps" / "start.sh", *arguments], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "PATH": path, "CALLS": str(calls)})
        return calls.read_text(encoding="utf-8").splitlines()

    def configured(self, *arguments):
        return [line for line in self.start(*arguments) if "-DTROUPE_CUDA=" in line]

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "this machine has a GPU")
    def test_without_a_gpu(self):
        self.assertEqual(self.configured(), ["cmake --preset release -DTROUPE_CUDA=OFF"])

    def test_with_a_gpu(self):
        self.stand_in("nvidia-smi", "#!/bin/sh\nexit 0\n")
        self.assertEqual(self.configured(), ["cmake --preset release -DTROUPE_CUDA=AUTO"])

    def test_asked_for(self):
        calls = self.start("--cuda", "sim", "glyphs-mlp")
        self.assertEqual(calls[0], "cmake --preset release -DTROUPE_CUDA=ON")
        self.assertEqual(calls[-1], "troupe sim glyphs-mlp")

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "this machine has a GPU")
    def test_asked_for_later(self):
        self.configured()
        self.assertEqual(self.configured(), [])
        self.assertEqual(self.configured("--cuda"), ["cmake --preset release -DTROUPE_CUDA=ON"])
        self.assertEqual(self.configured("--cuda"), [])
        self.assertEqual(self.configured(), [])

    def test_help(self):
        said = subprocess.run([self.folder / "apps" / "start.sh", "--help"], check=True, capture_output=True, text=True)
        self.assertIn("--cuda", said.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
