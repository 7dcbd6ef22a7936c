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
def CppExtension(name, sources, include_dirs, libraries, library_dirs, extra_compile_args):
    chosen = [each for each in sources if "device_" in each or "direct_" in each]
    print(json.dumps([chosen, include_dirs, [each for each in libraries if "nccl" in each], library_dirs]))
    raise SystemExit(0)
"""


def setup(folder, cuda, headers, nccl=None, **environment):
    """How setup.py ends with headers of the runtime in these folders, and a version of NCCL: sources for devices, folders, libraries and
    their folders; or its words."""
    folder = pathlib.Path(folder).resolve()
    for path, text in (("torch/__init__.py", TORCH.format(cuda=cuda)), ("torch/utils/cpp_extension.py", EXTENSION)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for each in headers:
        (folder / each).mkdir(parents=True)
    if nccl is not None:
        for each in ("include", "lib"):
            (folder / "nvidia/nccl" / each).mkdir(parents=True)
        parts = zip(("MAJOR", "MINOR", "PATCH"), nccl)
        (folder / "nvidia/nccl/include/nccl.h").write_text("".join(f"#define NCCL_{name} {part}\n" for name, part in parts))
        (folder / "nvidia/nccl/lib/libnccl.so.2").write_text("")
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
    sources, folders, libraries, library_folders = json.loads(done.stdout)

    def inside(some):
        return [os.path.relpath(each, folder) for each in some if each.startswith(str(folder))]

    return sources, inside(folders), libraries, inside(library_folders)


def without_nccl(device):
    return [f"csrc/device_{device}.cpp", "csrc/direct_none.cpp"]


class Headers(unittest.TestCase):
    def found(self, *arguments, **environment):
        with tempfile.TemporaryDirectory() as folder:
            return setup(folder, *arguments, **environment)

    def test_packages_of_cuda_13(self):
        place = "nvidia/cu13/include"
        self.assertEqual(self.found("13.2", [place]), (without_nccl("cuda"), [place], [], []))

    def test_packages_of_cuda_12(self):
        places = ["nvidia/cuda_runtime/include", "nvidia/cublas/include"]
        self.assertEqual(self.found("12.8", places), (without_nccl("cuda"), places, [], []))

    def test_toolkit(self):
        found = self.found("12.8", ["toolkit/include", "nvidia/cublas/include"], TEST_CUDA_HOME="{}/toolkit")
        self.assertEqual(found, (without_nccl("cuda"), ["toolkit/include"], [], []))

    def test_nccl(self):
        runtime, nccl = "nvidia/cu13/include", "nvidia/nccl/include"
        found = self.found("13.2", [runtime], (2, 30, 7))
        sources = ["csrc/device_cuda.cpp", "csrc/direct_nccl.cpp"]
        self.assertEqual(found, (sources, [nccl, runtime], [":libnccl.so.2"], ["nvidia/nccl/lib"]))

    def test_old_nccl(self):
        runtime = "nvidia/cu13/include"
        self.assertEqual(self.found("13.2", [runtime], (2, 18, 6)), (without_nccl("cuda"), [runtime], [], []))

    def test_without_headers(self):
        for cuda in ("12.8", None):
            self.assertEqual(self.found(cuda, []), (without_nccl("none"), [], [], []))
            self.assertIn("no cuda_runtime_api.h", self.found(cuda, [], UNISONO_TORCH_DEVICE="cuda"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
