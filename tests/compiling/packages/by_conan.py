#!/usr/bin/env python3
"""The library by Conan 2, with no remote: by_conan.py CONAN SOURCE WORK COMPILER ID VERSION [COMPONENT...]

Creates the packages in conan/ in a cache of its own and builds tests/compiling/packages/consumer on them, then on the editable package; with those
components, by the recipes of what the machine has. Looks at what is refused, and why.
"""
import json, os, pathlib, re, shutil, subprocess, sys

conan, source, work, compiler, identity, version = sys.argv[1:7]
components = sys.argv[7:]
libraries = ["cudart" if name == "cuda" else name for name in components]
source, work = pathlib.Path(source), pathlib.Path(work) / "by_conan"
shutil.rmtree(work, ignore_errors=True)
header = (source / "include/unisono/core/version.hpp").read_text()
library = ".".join(re.search(rf"UNISONO_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))
environment = {**os.environ, "CONAN_HOME": str(work / "home"), "PYTHONDONTWRITEBYTECODE": "1",
               "CMAKE_CXX_COMPILER_LAUNCHER": shutil.which("ccache") or "", "CCACHE_DEPEND": "1"}
profile = source / "conan/profiles" / ("gcc-12-cpp20" if identity == "GNU" else "clang-14-cpp20")
settings = ["-pr:a", profile, "-s:a", "build_type=Debug", "-s:a", "compiler.version=" + version.split(".")[0],
            "-c:a", "tools.build:compiler_executables=" + json.dumps({"cpp": compiler}), "-c:a", "tools.build:cxxflags=['-O0']", "-c:a", "tools.build:jobs=1",
            "-c:a", f"tools.cmake.cmake_layout:test_folder={work}/test", "-c:a", f"tools.cmake.cmake_layout:build_folder={work}/build"]


def run(*command, status=0):
    done = subprocess.run([conan, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500,
                          env=environment, cwd=work)
    assert (done.returncode == 0) == (status == 0), f"conan {' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def built(*options):
    shutil.rmtree(work / "build", ignore_errors=True)
    told = run("build", source / "tests/compiling/packages/consumer", *settings, *options)
    for line in (f"consumer of unisono {library}: 1 + 2 = 3", "started by a tool of Conan\nstarted by a tool of Conan"):
        assert line in told, f"'{line}' is not in\n{told}"
    ninja = next((work / "build").rglob("build.ninja")).read_text()
    return told, set(re.findall(r"-(?:I|isystem) ?(\S+)", ninja))


work.mkdir(parents=True)
run("profile", "detect")
run("remote", "remove", "*")
assert "conancenter" not in run("remote", "list")

for name in (*libraries, "cli11", *(["boost"] if "mpi" in components else [])):
    run("create", source / "conan/system" / name, *settings)
told = run("create", source / "conan", *settings)
assert f"test_package of unisono {library}: 1 + 2 = 3" in told, told
run("create", source / "conan/unisono_run", *settings)
packages = run("list", f"unisono/{library}:*")
# The ID of a package without dependencies.
assert packages.count("da39a3ee5e6b4b0d3255bfef95601890afd80709") == 1, packages
print("created without a remote")

told = run("create", source / "conan", *settings, "-o", "&:header_only=False")
assert f"test_package of unisono {library}: 1 + 2 = 3" in told and "unisono::compiled" in told, told
print("the compiled mode, too")

told, includes = built("-o", "&:components=" + ",".join(components))
assert not any(path.startswith(str(source / "include")) for path in includes), includes
assert "mpi" not in components or "100% tests passed" in told, told
assert "thrust" not in components or "consumer with thrust: 1 rank, sum 3" in told, told
for name in {"cuda", "nccl"} & set(components):
    assert re.search(f"consumer with {name}: (1 rank, sum 3|.*GPU)", told), told
print("the consumer runs", *(["with", *components] if components else []))

run("editable", "add", source / "conan")
_, includes = built()
assert str(source / "include") in includes, includes
run("editable", "remove", source / "conan")
print("the same, of the editable package")

for changed, why in (("compiler.version=11" if identity == "GNU" else "compiler.version=13", "needs g++ 12, clang 14 or newer, found"),
                     ("compiler.cppstd=17", "Current cppstd (17) is lower than the required C++ standard (20)"),
                     ("os=FreeBSD", "Unisono needs Linux, found FreeBSD")):
    told = run("install", f"--requires=unisono/{library}", *settings, "-s:h", changed, status=1)
    assert why in told, told
print("refused with a reason: old compilers, C++17, other systems")

if "mpi" in components and shutil.which("mpicxx.mpich"):
    run("install", source / "tests/compiling/packages/consumer", *settings, "-o", "&:components=mpi", "-o", "mpi/*:implementation=mpich")
    assert any("mpich" in path.read_text() for path in work.rglob("mpi-*-data.cmake")), "implementation=mpich is not what it gives"
    print("the other MPI")
