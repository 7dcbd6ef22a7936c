"""Which headers of CUDA setup.py finds, beside a PyTorch that is not there."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SETUP = pathlib.Path(__file__).resolve().parents[1] / "setup.py"
TORCH = """
__version__ = "2.0"
class version:
    cuda = {cuda!r}
"""
EXTENSION = """
import json, os
CUDA_HOME = os.environ.get("TEST_CUDA_HOME")
BuildExtension = None
def CppExtension(name, sources, include_dirs, libraries, extra_compile_args):
    print(json.dumps([[each for each in sources if "device" in each], include_dirs]))
    raise SystemExit(0)
"""


def setup(folder, cuda, headers, **environment):
    """How setup.py ends with headers of the runtime in these folders: sources for devices and folders, or its words."""
    folder = pathlib.Path(folder).resolve()
    for path, text in (("torch/__init__.py", TORCH.format(cuda=cuda)), ("torch/utils/cpp_extension.py", EXTENSION)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for each in headers:
        (folder / each).mkdir(parents=True)
    if headers:
        (folder / headers[0] / "cuda_runtime_api.h").write_text("")
    clean = {name: value for name, value in os.environ.items() if name not in ("UNISONO_TORCH_DEVICE", "UNISONO_INCLUDE")}
    done = subprocess.run(
        [sys.executable, str(SETUP), "--version"],
        env=clean | {"PYTHONPATH": str(folder)} | {name: value.format(folder) for name, value in environment.items()},
        cwd=SETUP.parent,
        capture_output=True,
        text=True,
        timeout=100,
    )
    if done.returncode != 0:
        return done.stderr
    sources, folders = json.loads(done.stdout)
    return sources, [os.path.relpath(each, folder) for each in folders if each.startswith(str(folder))]


class Headers(unittest.TestCase):
    def found(self, *arguments, **environment):
        with tempfile.TemporaryDirectory() as folder:
            return setup(folder, *arguments, **environment)

    def test_packages_of_cuda_13(self):
        place = "nvidia/cu13/include"
        self.assertEqual(self.found("13.2", [place]), (["csrc/device_cuda.cpp"], [place]))

    def test_packages_of_cuda_12(self):
        places = ["nvidia/cuda_runtime/include", "nvidia/cublas/include"]
        self.assertEqual(self.found("12.8", places), (["csrc/device_cuda.cpp"], places))

    def test_toolkit(self):
        found = self.found("12.8", ["toolkit/include", "nvidia/cublas/include"], TEST_CUDA_HOME="{}/toolkit")
        self.assertEqual(found, (["csrc/device_cuda.cpp"], ["toolkit/include"]))

    def test_without_headers(self):
        for cuda in ("12.8", None):
            self.assertEqual(self.found(cuda, []), (["csrc/device_none.cpp"], []))
            self.assertIn("no cuda_runtime_api.h", self.found(cuda, [], UNISONO_TORCH_DEVICE="cuda"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
