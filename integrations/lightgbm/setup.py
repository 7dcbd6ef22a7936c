"""Builds the network's library; LightGBM is not needed for that. See README.md."""

import os
from pathlib import Path

from setuptools import Extension, setup

here = Path(__file__).resolve().parent
headers = Path(os.environ.get("UNISONO_INCLUDE", here.parents[1] / "include"))
if not (headers / "unisono" / "c.hpp").is_file():
    raise SystemExit(
        f"unisono_lightgbm: no unisono/c.hpp in {headers}; set UNISONO_INCLUDE to the folder that has Unisono's headers"
    )
os.chdir(here)

setup(
    name="unisono_lightgbm",
    version="0.1.0",
    description="LightGBM's network over Unisono",
    packages=["unisono_lightgbm"],
    python_requires=">=3.9",
    install_requires=["lightgbm>=4", "numpy"],
    ext_modules=[
        Extension(  # loaded by ctypes
            "unisono_lightgbm._network",
            ["unisono_lightgbm.cpp", "unisono_c.cpp"],
            include_dirs=[str(headers)],
            depends=["unisono_lightgbm.h"],
            extra_compile_args=["-std=c++20", "-O2", "-fvisibility-inlines-hidden"],
            language="c++",
        )
    ],
)
