"""Builds the extension against the PyTorch that is installed. See README.md."""

import os
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

sources = [f"csrc/{name}.cpp" for name in ("backend", "callbacks", "driver", "elements", "lane", "module", "world")]
folders = [str(headers), str(here / "csrc")]
libraries = []

# UNISONO_TORCH_DEVICE: "cuda" for tensors of GPUs, "none", or "stand_in" for tests. By default
# "cuda" if PyTorch has CUDA and its headers are found: those of a toolkit, or of the packages that
# PyTorch has installed.
device = os.environ.get("UNISONO_TORCH_DEVICE", "auto")
if device in ("auto", "cuda"):
    places = []  # each with all the folders that it adds
    if torch.version.cuda:
        if CUDA_HOME:
            places.append([Path(CUDA_HOME) / "include"])
        packages = Path(torch.__file__).resolve().parents[1] / "nvidia"
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
if device == "stand_in":
    stand_in = here.parents[1] / "tests" / "extensions" / "nccl" / "stand_in"
    sources += ["tests/stand_in/device.cpp", "tests/stand_in/runtime.cpp"]
    folders.append(str(stand_in))
elif device in ("cuda", "none"):
    sources.append(f"csrc/device_{device}.cpp")
else:
    raise SystemExit(f"unisono_torch: UNISONO_TORCH_DEVICE is {device!r}; expected cuda, none or stand_in")

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
            extra_compile_args=["-std=c++20", *os.environ.get("UNISONO_TORCH_FLAGS", "-O2").split()],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
