#!/usr/bin/env python3
"""Processor time and object size of what includes Unisono, at -O2: medians of rounds in which all programs take turns.

"standard" is an empty program with the standard and system headers that the umbrella included on 24 November 2026, so that figures of all days are
multiples of the same; "own standard" has those that it includes today. UNISONO_LIBTORCH is the include folder of LibTorch; without it, that of
Python's torch."""

import importlib.util
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUNDS = 3
OPTIONS = ["-std=c++20", "-O2", f"-I{ROOT / 'include'}"]
TRAINER = (ROOT / "bench/compile/trainer.cpp").read_text()
MODULE = "Trainer, module"
COMPILED = ", compiled mode"
PEERS = {"Eigen": "Eigen/Dense", "Asio": "asio.hpp", "fmt": "fmt/format.h", "nlohmann-json": "nlohmann/json.hpp", "LibTorch": "torch/torch.h"}
STANDARD = """algorithm array atomic bit cerrno charconv chrono cmath concepts condition_variable csignal cstddef cstdint cstdio cstdlib cstring ctime
exception fcntl.h initializer_list iterator limits linux/futex.h linux/membarrier.h memory mutex new numbers numeric optional poll.h pthread.h sched.h span
stdexcept string string_view sys/ioctl.h sys/mman.h sys/prctl.h sys/random.h sys/resource.h sys/stat.h sys/syscall.h sys/wait.h system_error thread tuple
type_traits typeinfo unistd.h utility vector""".split()
SECOND = """
        un::Trainer second{world, model, un::%s};
        (void)second.fit(data, {.epochs = 3, .batch_size = 4});
"""


def trainer(policies="", header="", second=""):
    """trainer.cpp, with more policies, or with a second trainer behind the first."""
    text = TRAINER.replace("un::Accumulate{.steps = 2}", "un::Accumulate{.steps = 2}" + policies)
    text = text.replace("        if (world.rank() != 0) return;\n", (SECOND % second if second else "") + "        if (world.rank() != 0) return;\n")
    assert not policies + second or text != TRAINER, "trainer.cpp has changed: no place for more policies"
    return "".join(f"#include <unisono/{each}.hpp>\n" for each in header.split()) + text


def headers_of_the_umbrella(compiler):
    """The headers in angle brackets that the umbrella's own headers include."""
    listed = subprocess.run([compiler, *OPTIONS, "-MM", "-x", "c++", "-"], input="#include <unisono/unisono.hpp>\n", capture_output=True, text=True, check=True)
    own = [pathlib.Path(word) for word in listed.stdout.replace("\\\n", " ").split() if "unisono/" in word]
    found = re.findall(r"^#include <([a-z_./0-9]+)>", "\n".join(path.read_text() for path in own), re.M)
    return sorted({name for name in found if not name.startswith("unisono/")}), own


def programs(compiler):
    """Pairs of a name and a program."""
    names, own = headers_of_the_umbrella(compiler)
    print(f"the umbrella: {len(own)} headers, {sum(len(path.read_text().splitlines()) for path in own):,} lines, over {len(names)} standard and system headers")
    include = "#include <{}>\nint main() {{}}\n".format
    yield "standard", "".join(f"#include <{name}>\n" for name in STANDARD) + "int main() {}\n"
    yield "own standard", "".join(f"#include <{name}>\n" for name in names) + "int main() {}\n"
    umbrella = include("unisono/unisono.hpp")
    yield "umbrella", umbrella
    over_tcp = """#include <unisono/tcp.hpp>
#include <unisono/unisono.hpp>
#include <vector>
int main() {
    auto world = unisono::join<unisono::Tcp>();
    std::vector<float> gradient(1000, 1.0f);
    unisono::all_reduce(world, gradient);
}
"""
    yield "all_reduce over Tcp", over_tcp
    yield "all_reduce over Tcp" + COMPILED, "#define UNISONO_COMPILED\n" + over_tcp
    yield "all_reduce on 2 threads", """#include <unisono/unisono.hpp>
#include <vector>
int main() {
    unisono::run<unisono::InProcess>(2, [](auto& world) {
        std::vector<float> gradient(1000, 1.0f);
        unisono::all_reduce(world, gradient);
    });
}
"""
    yield "Trainer (trainer.cpp)", trainer()
    yield "umbrella" + COMPILED, "#define UNISONO_COMPILED\n" + umbrella
    yield "Trainer" + COMPILED, "#define UNISONO_COMPILED\n" + trainer()
    if compiler == "clang++-19":
        yield MODULE, (ROOT / "examples/module/module.cc").read_text()
    for name, text in (
        ("+ clipping", trainer(", un::ClipByNorm{.max_norm = 1.0}")),
        ("+ sums on a grid", trainer(", un::Reproducible{}", "reproducible")),
        ("+ sharded state", trainer(", un::StateSharding{}")),
        ("+ local steps", trainer(", un::LocalSteps{.steps = 4}")),
        ("+ a second Trainer", trainer(second="TreeReducer{}, un::AdamW{.learning_rate = 1e-3}")),
    ):
        yield name, text
        yield name + COMPILED, "#define UNISONO_COMPILED\n" + text
    for name, header in PEERS.items():
        yield name, include(header)


def libtorch():
    """Options that find LibTorch's headers."""
    folder = os.environ.get("UNISONO_LIBTORCH")
    if not folder:
        spec = importlib.util.find_spec("torch")
        folder = spec and os.path.join(os.path.dirname(spec.origin), "include")
    return [f"-isystem{folder}{each}" for each in ("", "/torch/csrc/api/include")] if folder else []


def compiled(compiler, source, out, module):
    """Processor seconds and bytes of text, or the first error."""
    command = [compiler, *OPTIONS, "-isystem", "/usr/include/eigen3", *libtorch(), "-c", source, "-o", out]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command + module, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return None, next((line for line in done.stderr.splitlines() if "error" in line), "failed")
    size = subprocess.run(["size", out], capture_output=True, text=True, check=True).stdout.split("\n")[1].split()[0]
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, int(size)


def measure(compiler):
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    print(f"\n{version}, {' '.join(OPTIONS[:2])}")
    with tempfile.TemporaryDirectory() as folder:
        sources, module = {}, []
        if compiler == "clang++-19":
            subprocess.run([compiler, *OPTIONS, "--precompile", ROOT / "src/unisono.cppm", "-o", f"{folder}/unisono.pcm"], check=True)
            module = [f"-fmodule-file=unisono={folder}/unisono.pcm"]
        for name, text in programs(compiler):
            path = pathlib.Path(folder, f"{len(sources)}.cpp")
            path.write_text(text)
            sources[name] = path
        times, sizes, absent = {name: [] for name in sources}, {}, {}
        for _ in range(ROUNDS):
            for name, path in sources.items():
                if name not in absent:
                    seconds, size = compiled(compiler, str(path), os.path.join(folder, "out.o"), module if name == MODULE else [])
                    if seconds is None:
                        absent[name] = size
                    else:
                        times[name].append(seconds)
                        sizes[name] = size
    floor = statistics.median(times["standard"])
    first = [statistics.median(times[name]) for name in ("Trainer (trainer.cpp)", "Trainer" + COMPILED)]
    print(f"{'':34}{'seconds':>9}{'spread':>8}{'x standard':>12}{'KB of code':>12}")
    for name, each in times.items():
        if each:
            middle = statistics.median(each)
            more = f"   {(middle - first[name.endswith(COMPILED)]) / floor:+.2f} x" if name.startswith("+") else ""
            print(f"{name:34}{middle:9.2f}{max(each) - min(each):8.2f}{middle / floor:12.2f}{sizes[name] / 1000:12.0f}{more}")
    wrong = [name for name in absent if name not in PEERS]
    for name in wrong:
        print(f"{name}: {absent[name]}", file=sys.stderr)
    print("not here:", ", ".join(name for name in absent if name not in wrong) or "nothing")
    return not wrong


if __name__ == "__main__":
    compilers = [name for name in ("g++", "clang++", "clang++-19") if shutil.which(name)]
    if not all([measure(compiler) for compiler in compilers]):
        sys.exit(1)
