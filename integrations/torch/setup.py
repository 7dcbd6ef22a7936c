"""Builds the extension against the PyTorch that is installed. See README.md."""

import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

here = Path(__file__).resolve().parent
headers = Path(os.environ.get("UNISONO_INCLUDE", here.parents[1] / "include"))
if not (headers / "unisono" / "unisono.hpp").is_file():
    raise SystemExit(
        f"unisono_torch: no unisono/unisono.hpp in {headers}; set UNISONO_INCLUDE to the folder that has Unisono's headers"
    )

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
            [f"csrc/{name}.cpp" for name in ("backend", "callbacks", "driver", "elements", "module", "world")],
            include_dirs=[str(headers), str(here / "csrc")],
            extra_compile_args=["-std=c++20", *os.environ.get("UNISONO_TORCH_FLAGS", "-O2").split()],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
