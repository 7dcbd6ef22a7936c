#!/usr/bin/env python3
"""Trainings on a device have one hash, whoever compiles them: check.py SOURCE BUILD_FOLDER LIBRARY_PROGRAM HEADER_ONLY_PROGRAM LIBRARY NVCC [CLANG]

Both programs are trained.cpp: with the library unisono::devices, and with the kernels of the headers. CLANG compiles it for
LIBRARY, too. All print the same lines. A program of another version does not link to LIBRARY. NVCC, if there is one, compiles own.cu:
the library's kernels are then references, those of the program's own functors are there.
"""
import pathlib
import re
import shutil
import subprocess
import sys

source, build, with_library, header_only, library, nvcc = sys.argv[1:7]
here = pathlib.Path(__file__).parent
FLAGS = ["-std=c++20", "-O0", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-pthread", f"-I{here.parent}/nccl/stand_in",
         f"-I{source}/tests", f"-I{source}/include"]


def run(*command, status=0):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=500)
    if (done.returncode == 0) != (status == 0):
        sys.exit(f"{' '.join(map(str, command))[:1000]}: status {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout if status == 0 else done.stderr


programs = {"the library": with_library, "header-only": header_only}
for clang in sys.argv[7:]:
    program = pathlib.Path(build) / "device_library_by_clang"
    launcher = [found] if (found := shutil.which("ccache")) else []
    run(*launcher, clang, *FLAGS, "-DUNISONO_DEVICES", "-c", here / "trained.cpp", "-o", f"{program}.o")
    run(clang, f"{program}.o", library, "-o", program, "-pthread")
    programs["the library, clang"] = program
lines = {name: run(program).splitlines() for name, program in programs.items()}
for name, told in lines.items():
    if len(told) != 104 or told != lines["the library"]:
        differ = [f"{a}\n{b}" for a, b in zip(told, lines["the library"]) if a != b]
        sys.exit(f"{name}: {len(told)} lines, expected 104, the same as with the library\n" + "\n".join(differ[:10]))
hashes = {line.split(": ")[1] for line in lines["the library"][:-1]}
if len(hashes) < 90:
    sys.exit(f"{len(hashes)} different hashes of 103 trainings: some policies did nothing")
print(f"{len(programs)} programs print the same 103 hashes: {', '.join(programs)}")

# A program whose headers are of another version.
other = pathlib.Path(build) / "device_library_other_version"
shutil.rmtree(other, ignore_errors=True)
(other / "unisono/core").mkdir(parents=True)
version = pathlib.Path(source, "include/unisono/core/version.hpp").read_text()
(other / "unisono/core/version.hpp").write_text(re.sub(r"(PATCH) .*", r"\1 1000", version))
(other / "program.cpp").write_text("""#include <unisono/extensions/device_library/stream.hpp>
#include <array>
int main() {
    std::array<float, 2> x{};
    unisono::StreamArithmetic<cudaStream_t>(nullptr).scale(std::span<float>(x), 2.0);
}
""")
program = [shutil.which("c++"), f"-I{other}", *FLAGS, "-DUNISONO_DEVICES", other / "program.cpp", library, "-o", other / "program"]
refused = run(*program, status=1)
if not re.search(r"undefined reference to .*KernelOfUnisonoDevices<.*DevicesVersion<\d+, \d+, 1000>", refused):
    sys.exit(f"a program of another version: expected that a kernel of its version is missing\n{refused[-2000:]}")
run(program[0], *program[2:]) # of the same version it links
print("a program of another version does not link")

# A program with a source of each kind.
mixed = pathlib.Path(build) / "device_library_mixed"
mixed.mkdir(exist_ok=True)
(mixed / "library.cpp").write_text("""#include <unisono/extensions/device_library/stream.hpp>
#include <cstdio>
int main() {
    try {
        unisono::StreamArithmetic<cudaStream_t> on(nullptr);
        std::puts("accepted");
    } catch (const unisono::error& failed) {
        std::puts(failed.what());
    }
}
""")
(mixed / "headers.cpp").write_text("#include <unisono/extensions/device/kernel_sources.hpp>\nUNISONO_KERNELS_ARE_OF(headers)\n")
for compiler in (shutil.which("c++"), *sys.argv[7:]):
    told = []
    for sources in (["library.cpp"], ["library.cpp", "headers.cpp"]):
        run(compiler, *FLAGS, "-DUNISONO_DEVICES", *(mixed / source for source in sources), library, "-o", mixed / "program")
        told.append(run(mixed / "program"))
    if told[0] != "accepted\n" or "kernels of the library unisono::devices and sources with kernels of the headers" not in told[1]:
        sys.exit(f"{compiler}: expected that only a program with kernels of both is refused: {told}")
print("a program with kernels of the library and of the headers is refused")

if pathlib.Path(nvcc).is_file():
    compiled = pathlib.Path(build) / "device_library_own.o"
    run(nvcc, "-std=c++20", "--expt-relaxed-constexpr", "-Werror", "all-warnings", "-diag-suppress", "554,780,20011,20014",
        "-arch=sm_90", f"-I{source}/include", "-DUNISONO_DEVICES", "-c", here / "own.cu", "-o", compiled)
    symbols = run("nm", "-C", compiled).splitlines()
    library_has = [line for line in symbols if re.search(r" U .*KernelOfUnisonoDevices<.*(verb::combine|AdamElement)", line)]
    program_has = [line for line in symbols if re.search(r"\b[TtWV] .*(Halve|Larger)", line)]
    if len(library_has) < 2 or not program_has or any(re.search(r"\b[TW] .*AdamElement.*for_each", line) for line in symbols):
        sys.exit(f"own.cu: expected references to the library and kernels of its own\n{library_has}\n{program_has[:3]}")
    print("own.cu compiled for sm_90, not run")
    headers = pathlib.Path(build) / "device_library_headers.o"
    run(nvcc, "-std=c++20", "--expt-relaxed-constexpr", "-Werror", "all-warnings", "-diag-suppress", "554,780,20011,20014",
        "-arch=sm_90", f"-I{source}/include", "-c", here / "headers.cu", "-o", headers)
    for name, has, lacks in ((compiled, "library", "headers"), (headers, "headers", "library")):
        marks = {kind: symbol for symbol, kind in re.findall(r" (\w) unisono_kernels_of_(\w+)", run("nm", name))}
        if marks.get(has) not in ("V", "W") or marks.get(lacks) != "w" and marks.get(lacks) != "v":
            sys.exit(f"{name}: expected the mark of the {has}, and a weak reference to that of the {lacks}; found {marks}")
