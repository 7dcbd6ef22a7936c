#!/usr/bin/env python3
"""The library as strangers get it: check.py SOURCE BUILD WORK COMPILER GENERATOR CASE

names            each public header that needs no third party has a target, by CMake and by Conan
install          what BUILD installs, into a prefix that is then moved elsewhere: for the cases package, pkg_config and refusals
package          find_package(Unisono) and find_package(unisono), and each component whose library is there
pkg_config       unisono.pc and unisono-compiled.pc with a compiler alone
sources          add_subdirectory and FetchContent
bare             this repository without CLI11: what is built and installed, and why no tests
refusals         what find_package says where it cannot serve, and the headers to an older standard and without exceptions

Each builds tests/compiling/packages/consumer, runs it and looks at what it prints.
"""
import os, pathlib, re, shutil, subprocess, sys

source, build, work = (pathlib.Path(argument) for argument in sys.argv[1:4])
compiler, generator, case = sys.argv[4:7]
here = pathlib.Path(__file__).parent
prefix = work / "moved"
header = (source / "include/unisono/core/version.hpp").read_text()
version = ".".join(re.search(rf"UNISONO_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def run(*command, status=0, **options):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500,
                          **options)
    assert (done.returncode == 0) == (status == 0), f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def configured(name, project, *definitions):
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    launcher = shutil.which("ccache")
    os.environ["CCACHE_DEPEND"] = "1"
    run("cmake", "-S", project, "-B", folder, "-G", generator, f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_CXX_FLAGS=-Werror",
        f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher or ''}", *definitions)
    return folder


there = os.environ.get("UNISONO_COMPONENTS", "").split()


def consumer(name, *definitions, components=(), extensions=False):
    """Configured for every component, built and run for these: that takes its time."""
    components = [component for component in components if component in there]
    folder = configured(name, here / "consumer", *definitions, f"-DCONSUMER_COMPONENTS={';'.join(there)}")
    run("cmake", "--build", folder, "--parallel", 1, "--target", "consumer", *(f"consumer_{component}" for component in components))
    told = run(folder / "consumer")
    assert told == f"consumer of unisono {version}: 1 + 2 = 3\n", told
    for component in components:
        told = run(folder / f"consumer_{component}", env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                                          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        # MPI may have warned about the machine before.
        assert told.splitlines()[-1] == f"consumer with {component}: 1 rank, sum 3", told
    if extensions:
        run("cmake", "--build", folder, "--parallel", 1, "--target", "consumer_extensions")
        assert run(folder / "consumer_extensions") == "consumer with extensions: asynchronous\n"
    print(f"{name}: the consumer runs", *components)
    return folder


# Public headers without a target of their own: the base's, C's, and those of third parties.
OTHERS = {"unisono", "elsewhere", "c", "cuda", "libfabric", "mpi", "nccl", "thrust"}


def names():
    headers = {path.stem for path in (source / "include/unisono").glob("*.hpp")}
    assert OTHERS <= headers, f"no public headers: {OTHERS - headers}"
    for path, pattern in (("cmake/UnisonoExtensions.cmake", r"set\(unisono_extensions ([^)]*)\)"), ("conan/conanfile.py", r"\n    extensions = \(([^)]*)\)")):
        listed = set(re.findall(r"\w+", re.search(pattern, (source / path).read_text())[1]))
        lacks, extra = headers - OTHERS - listed, listed - (headers - OTHERS)
        assert not lacks and not extra, f"{path} lacks {sorted(lacks)}, and has {sorted(extra)} without a public header"
    print(f"{len(headers - OTHERS)} targets, one for each public header")


def install():
    for folder in (work / "prefix", prefix):
        shutil.rmtree(folder, ignore_errors=True)
    run("cmake", "--install", build, "--prefix", work / "prefix")
    (work / "prefix").rename(prefix)
    headers = sorted(path.relative_to(source) for path in (source / "include").rglob("*.hpp"))
    installed = sorted(path.relative_to(prefix) for path in (prefix / "include").rglob("*"))
    missing = set(headers) - set(installed)
    assert headers and not missing, f"headers that are not installed: {missing}"
    for path in prefix.rglob("*"): # what the prefix says about itself must be true wherever it is
        if path.suffix in (".cmake", ".pc"):
            text = path.read_text()
            for where in (str(work), str(source), str(build)):
                assert where not in text, f"{path.relative_to(prefix)} names {where}"
    told = run(prefix / "bin/unisono-run", "-n", "2", "--no-label", "--", "echo", "hello")
    assert told == "hello\nhello\n", told
    print(f"{len(headers)} headers and unisono-run")


def package():
    by = ["-DCONSUMER_BY=package", f"-DCMAKE_PREFIX_PATH={prefix}"]
    folder = consumer("package", *by, components=["compiled", "libfabric", "thrust"],
                      extensions=True)
    found = (folder / "CMakeCache.txt").read_text()
    assert f"Unisono_DIR:PATH={prefix}/" in found, "another Unisono was found"
    if "devices" in there:
        run("cmake", "--build", folder, "--target", "consumer_devices")
        told = run(folder / "consumer_devices")
        assert re.search("consumer with devices: (1 rank, sum 3|.*GPU)", told), told
    configured("package_small_letters", here / "consumer", *by, "-DCONSUMER_NAME=unisono")


def pkg_config():
    folders = {path.parent for path in prefix.rglob("*.pc")}
    assert len(folders) == 1, f"files for pkg-config in {folders}: expected one folder"
    environment = {**os.environ, "PKG_CONFIG_PATH": str(*folders)}
    assert run("pkg-config", "--modversion", "unisono", env=environment).strip() == version
    flags = run("pkg-config", "--cflags", "--libs", "unisono", env=environment).split()
    assert f"-I{prefix}/include" in [os.path.normpath(flag) for flag in flags], flags
    program = work / "by_pkg_config"
    run(compiler, "-std=c++20", here / "consumer/main.cpp", "-o", program, *flags)
    told = run(program)
    assert told == f"consumer of unisono {version}: 1 + 2 = 3\n", told
    if "compiled" in there:
        flags = run("pkg-config", "--cflags", "--libs", "unisono-compiled", env=environment).split()
        run(compiler, "-std=c++20", here / "consumer/compiled.cpp", "-o", program, *flags)
        # If the library is a shared one.
        library_path = next(flag[2:] for flag in flags if flag.startswith("-L"))
        told = run(program, env={**os.environ, "LD_LIBRARY_PATH": library_path})
        assert told == "consumer with compiled: 1 rank, sum 3\n", told
    print("pkg-config: the consumer runs", *folders)


def sources():
    for way, components in (("add_subdirectory", ["mpi"]), ("FetchContent", [])):
        # Without the dependencies of tests and examples: a subproject has neither.
        absent = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("Boost", "CLI11", "nlohmann_json")]
        consumer(way, f"-DCONSUMER_BY={way}", f"-DCONSUMER_SOURCE={source}", "-DUNISONO_MPI=ON", *absent, components=components,
                 extensions=way == "FetchContent")


def bare():
    alone = [f"-DUNISONO_BUILD_{part}=OFF" for part in ("TESTS", "EXAMPLES", "BENCH")]
    absent = ["-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON", "-G", generator, f"-DCMAKE_CXX_COMPILER={compiler}"]
    shutil.rmtree(work / "bare", ignore_errors=True)
    told = run("cmake", "-S", source, "-B", work / "bare", *absent, *alone)
    assert "No unisono-run: CLI11 not found (Debian: libcli11-dev)" in told, told
    tools = {path.stem for path in (work / "bare/tools/CMakeFiles").glob("*.dir")}
    assert tools >= {"unisono-compare-hashes", "unisono-certificate"} and "unisono-run" not in tools, tools
    told = run("cmake", "-S", source, "-B", work / "bare", *absent, *alone[1:], "-DUNISONO_BUILD_TESTS=ON", status=1)
    assert "The tests start unisono-run, which needs CLI11 (Debian: libcli11-dev)" in told, told
    print("without CLI11: no unisono-run")


def refusals():
    configured("refusals", here / "refusals", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DEXPECTED_VERSION={version}")
    for flag, why in (("-std=c++17", "Unisono needs C++20 (found an older -std); pass -std=c++20 or newer"),
                      ("-fno-exceptions", "Unisono reports errors by exceptions: compile the files that include it without")):
        told = run(compiler, "-std=c++20", flag, "-Wfatal-errors", "-fsyntax-only", f"-I{prefix}/include",
                   here / "consumer/main.cpp", status=1)
        first = next(line for line in told.splitlines() if " error: " in line)
        assert why in first, told[:1000]
    print("find_package and the headers say why")


cases = {"names": names, "install": install, "package": package, "pkg_config": pkg_config, "sources": sources, "bare": bare, "refusals": refusals}
cases[case]()
