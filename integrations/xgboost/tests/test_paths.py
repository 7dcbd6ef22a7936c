#!/usr/bin/env python3
"""Runs build.sh and upstream.sh on trees of a few lines, in folders whose names have spaces. Needs no XGBoost."""
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

SOURCE = {
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.18)
project(xgboost CXX)
add_library(objxgboost OBJECT src/learner.cc)
add_library(xgboost SHARED $<TARGET_OBJECTS:objxgboost>)
""",
    "src/learner.cc": """#include <unisono/c.hpp>
#ifdef NEVER
#include "collective/broadcast.h"
obj_->GetGradient(preds, info, iter, out_gpair);
#endif
int use() { return of_unisono(); }
""",
    "src/collective/comm_group.cc": '#include "comm.h" \nauto task_id = get_param(\n',
    "tests/cpp/collective/test_worker.h": """#include "../../../src/collective/comm.h"  // for RabitComm
RabitComm comm_;
DefaultNcclName(), 0}
comm_.HasChan(i)) {
std::string{"rabit"};
""",
    "tests/cpp/collective/test_allreduce.cc": "new Coll{}",
    "tests/cpp/collective/test_allgather.cc": "new Coll{}",
    "tests/cpp/helpers.h": "",
    "include/here": "",
    "dmlc-core/include/here": "",
}
# A compiler that requires all that it is told to read, and whose programs succeed.
COMPILER = """#!/usr/bin/env python3
import os, sys
arguments = sys.argv[1:]
out = arguments[arguments.index("-o") + 1]
given = [one for i, one in enumerate(arguments) if not one.startswith("-") and arguments[i - 1] not in ("-o", "-std")]
missing = [one for one in given if not os.path.exists(one)]
if missing:
    sys.exit(f"there is no {missing[0]} (of {arguments})")
open(out, "w").write("#!/bin/sh\\nexit 0\\n")
os.chmod(out, 0o755)
"""


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(*command, **variables):
    done = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}"
    return done.stdout


with tempfile.TemporaryDirectory(prefix="a folder of ") as folder:
    here = Path(folder)
    source, build, include = here / "the source", here / "the build", here / "the headers"
    write(source, SOURCE)
    write(include, {"unisono/c.hpp": "inline int of_unisono() { return 7; }\n"})
    told = {"UNISONO_INCLUDE": str(include), "CXXFLAGS": "-O0"}
    run("bash", str(HERE.parent / "build.sh"), str(source), str(build), **told)
    assert list(build.glob("libxgboost.so")), "build.sh built no libxgboost.so"
    write(build, {"dmlc-core/libdmlc.a": "", "dmlc-core/include/here": "", "src/CMakeFiles/objxgboost.dir/an object.o": ""})
    compiler = here / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    # A compiler's name may have arguments behind it, so it is found in PATH.
    path = f"{here}{os.pathsep}{os.environ['PATH']}"
    said = run("bash", str(HERE / "upstream.sh"), str(source), str(build), "tcp", CXX="compiler", PATH=path, **told)
    assert "transport tcp" in said, said
print("paths with spaces: build.sh and upstream.sh")
