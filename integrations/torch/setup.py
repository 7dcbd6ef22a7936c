"""Builds the extension against the PyTorch that is installed. See README.md."""

import os
import re
from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension

here = Path(__file__).resolve().parent
headers = Path(os.environ.get("UNISONO_INCLUDE", here.parents[1] / "include"))
if not (headers / "unisono" / "unisono.hpp").is_file():
    raise SystemExit(
        f"unisono_torch: no unisono/unisono.hpp in {headers}; set UNISONO_INCLUDE to the folder that has Unisono's headers"
    )

names = ("backend", "callbacks", "direct", "driver", "elements", "lane", "module", "world")
sources = [f"csrc/{name}.cpp" for name in names]
folders = [str(headers), str(here / "csrc")]
libraries = []
library_folders = []
nccl = False  # whether collectives on tensors of GPUs can go by NCCL


def version_of(header):
    """The version in a header of NCCL, as NCCL writes it, or 0."""
    if not header.is_file():
        return 0
    found = dict(re.findall(r"^#define NCCL_(MAJOR|MINOR|PATCH) (\d+)", header.read_text(), re.MULTILINE))
    return sum(int(found.get(part, 0)) * unit for part, unit in (("MAJOR", 10000), ("MINOR", 100), ("PATCH", 1)))


# UNISONO_TORCH_DEVICE: "cuda" for tensors of GPUs, "none", or "stand_in" for tests. By default
# "cuda" if PyTorch has CUDA and its headers are found: those of a toolkit, or of the packages that
# PyTorch has installed.
device = os.environ.get("UNISONO_TORCH_DEVICE", "auto")
if device in ("auto", "cuda"):
    places = []  # each with all the folders that it adds
    packages = Path(torch.__file__).resolve().parents[1] / "nvidia"
    if torch.version.cuda:
        if CUDA_HOME:
            places.append([Path(CUDA_HOME) / "include"])
        places.append([packages / f"cu{torch.version.cuda.split('.')[0]}" / "include"])  # of CUDA 13 and newer
        runtime = packages / "cuda_runtime" / "include"  # of CUDA 12, where each library has a folder
        places.append([runtime, *(each for each in sorted(packages.glob("*/include")) if each != runtime)])
    found = [place for place in places if (place[0] / "cuda_runtime_api.h").is_file()]
    if device == "cuda" and not found:
        raise SystemExit(
            f"unisono_torch: UNISONO_TORCH_DEVICE=cuda, but PyTorch {torch.__version__} has no CUDA, or no cuda_runtime_api.h is in "
            f"{[str(place[0]) for place in places]}; set CUDA_HOME to a toolkit of PyTorch's version"
        )
    device = "cuda" if found else "none"
    if found:
        folders += [str(folder) for folder in found[0]]
        libraries += ["c10_cuda", "torch_cuda"]
        # NCCL 2.19 or newer, of the packages that PyTorch installs and loads itself.
        place = packages / "nccl"
        nccl = (place / "lib" / "libnccl.so.2").is_file() and version_of(place / "include" / "nccl.h") >= 21900
        if nccl:
            folders.insert(0, str(place / "include"))  # before a toolkit's
            libraries.append(":libnccl.so.2")
            library_folders.append(str(place / "lib"))
if device == "stand_in":
    stand_in = here.parents[1] / "tests" / "extensions" / "nccl" / "stand_in"
    sources += [f"tests/stand_in/{name}.cpp" for name in ("communicators", "device", "runtime")]
    folders.append(str(stand_in))
    nccl = True
elif device in ("cuda", "none"):
    sources.append(f"csrc/device_{device}.cpp")
else:
    raise SystemExit(f"unisono_torch: UNISONO_TORCH_DEVICE is {device!r}; expected cuda, none or stand_in")
sources.append("csrc/direct_nccl.cpp" if nccl else "csrc/direct_none.cpp")

setup(
    name="unisono_torch",
    version="0.1.0",
    description="The process group 'unisono' for torch.distributed",
    packages=["unisono_torch"],
    python_requires=">=3.9",
    install_requires=["torch"],
    ext_modules=[
        CppExtension(
            "unisono_torch._C",
            sources,
            include_dirs=folders,
            libraries=libraries,
            library_dirs=library_folders,
            extra_compile_args=["-std=c++20", *os.environ.get("UNISONO_TORCH_FLAGS", "-O2").split()],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
