#!/usr/bin/env python3
"""Enforces the arrows between the folders of include/unisono/: base and extensions, who may include whom.

    python3 check.py REPOSITORY

Prints one line for each violation, with file, line and what is allowed, and exits with status 1 if there is any.
"""
import re
import sys
from pathlib import Path

# -----------------------------------------------------------------------------------------------
# The table. A folder may include itself and the folders listed here. "x:concept" allows only the
# header that opens folder x with its concept (x/x.hpp or x/concept.hpp), x/archetype.hpp, and the
# headers in CONCEPT_HEADERS. The order of the base: core <- arithmetic, schedule, layout <-
# transport <- group <- collective <- policies <- trainer. No list here names an extension: only
# extensions, testing/ and the public headers beside the folders include them.

GROUP = ["core", "launch", "schedule", "arithmetic", "transport:concept"]
COLLECTIVE = ["group", *GROUP]
BASE = ["core", "launch", "arithmetic", "schedule", "layout", "transport", "group", "collective", "data", "sampler",
        "accumulation", "compression", "reducer", "guard", "update", "sharding", "optimizer", "model", "observe", "trainer"]
ANY_BUT_TESTING = ["*"]

MAY_INCLUDE = {
    "core": [],
    "arithmetic": ["core"],
    "launch": ["core"],
    "transport": ["core", "launch"],
    "schedule": ["core"],
    "group": GROUP,
    "collective": COLLECTIVE,
    "layout": ["core"],
    "data": ["core"],
    "sampler": ["core"],
    "accumulation": ["core", "arithmetic"],
    "compression": ["core", "arithmetic", "layout", "group", "collective"],
    "reducer": ["collective", *COLLECTIVE, "layout", "compression:concept"],
    "guard": ["core", "arithmetic", "layout"],
    "update": [*COLLECTIVE, "collective", "layout", "optimizer", "sharding:concept"],
    "sharding": ["core", "layout", "collective"],
    "optimizer": ["core", "arithmetic"],
    "model": ["core"],
    "observe": ["core"],
    "trainer": BASE,
    "compiled": BASE,
    "extensions": ANY_BUT_TESTING,
    "testing": ["*", "testing"],
    "": ANY_BUT_TESTING,  # public headers beside the folders
}

# Only these include extensions.
ONLY_FROM = {"extensions": ["", "testing", "extensions"]}
UMBRELLA = "unisono.hpp"
BASE_ENTRANCES = ["elsewhere.hpp"]  # headers beside the folders that belong to the base

# Public headers that an extension may include. Each other one may bring further extensions.
PUBLIC_FOR_EXTENSIONS = [UMBRELLA, *BASE_ENTRANCES, "c.h", "join.hpp"]

# An extension includes no other by accident -> those on which it is built.
BUILT_ON = {
    "automatic": ["device", "laboratory"],
    "cuda": ["device", "launch", "network"],
    "device": ["master_weights"],
    "device_library": ["cuda", "device", "thrust"],
    "elastic": ["hosts", "launch", "network", "simulated", "tcp"],
    "hosts": ["launch", "network", "tcp"],
    "libfabric": ["launch", "network"],
    "master_weights": ["sharded"],
    "mpi": ["cuda", "launch", "network"],
    "nccl": ["cuda", "hosts", "launch", "tcp"],
    "network": ["device", "launch"],
    "parallel": ["laboratory"],
    "reducers": ["automatic"],
    "simulated": ["laboratory"],
    "tcp": ["launch", "network"],
    "thrust": ["cuda", "device"],
}

# (base file, header of an extension) -> why the base needs it, for now. The list may only shrink.
EXCEPTIONS: dict[tuple[str, str], str] = {}
MOST_EXCEPTIONS = 0

# Headers that belong to their room's concept though they do not open the room -> why.
CONCEPT_HEADERS = {
    "trainer/failure.hpp": "how a rank tells the others that it failed: for whoever runs a model of the user's",
    "transport/stream_call.hpp": "what a transport with a device's stream is asked to do: part of the contract",
    "transport/endpoint.hpp": "what a group needs of a transport: the contract itself",
    "transport/transport_executor.hpp": "what a transport does itself: part of the contract",
    "transport/board.hpp": "what ranks with common memory share, whatever the transport: part of the contract",
}

# Only these back ends include third-party headers. The umbrella must not reach them.
THIRD_PARTY = {
    "extensions/libfabric": r"rdma/",
    "extensions/mpi": r"mpi(-ext)?\.h$",
    "extensions/cuda": r"cuda",
    "extensions/nccl": r"(nccl|cuda)",
    "extensions/thrust": r"(thrust|cuda|cub)",
    "extensions/device_library": r"(thrust|cuda)",
}

# core/standard.hpp brings only a part of <algorithm>. A header that uses the rest includes
# <algorithm>.
ALGORITHM = re.compile(r"std::(adjacent_find|all_of|any_of|binary_search|clamp|copy_if|copy_n|count|count_if|equal_range|"
                       r"find|find_if|find_if_not|for_each|generate|includes|inplace_merge|is_permutation|is_sorted|"
                       r"lower_bound|max_element|merge|min_element|minmax|minmax_element|none_of|nth_element|partial_sort|"
                       r"partition|partition_point|remove|remove_if|replace|replace_if|reverse|rotate|search|shuffle|"
                       r"sort|stable_partition|stable_sort|transform|unique|upper_bound)(?=[(<])|std::(min|max)\(\{")
INCLUDES_ALGORITHM = re.compile(r"^\s*#\s*include\s*<algorithm>")

# Standard headers that cost too much to compile, or tie the library to one instruction set.
COSTLY = {"filesystem", "random", "future", "ranges", "regex"}
COSTLY_PATTERN = re.compile(r"^([a-z]*mmintrin|x86intrin|arm_neon|arm_sve)\.h$")

# The system's clock may be set during a wait -> the headers that need it. Argument-dependent lookup
# also finds std::quoted if a program includes <iomanip>: detail::quoted of a std::string.
QUOTED = re.compile(r"(?<![\w:])quoted\((?!std::string_view )")
OWN_QUOTED = {"extensions/observe/metric_files.hpp"}  # a member, which is found first

# A compiler may fold these under its options (-ffinite-math-only, -fno-signed-zeros): core/math.hpp
# reads bits -> the headers that need them.
FOLDED = re.compile(r"\b(std::|__builtin_)(isfinite|isnan|isinf|isinf_sign|isnormal|fpclassify|signbit)\b|"
                    r"(?<![\w.>\]:])(?<![-+*/%] )([A-Za-z_]\w*) [!=]= \3(?![\w.(\[:<-])(?! [-+*/%])")
OWN_FOLDED = {
    "arithmetic/values.hpp": "a comparison in kernels, in files whose options are checked",
    "arithmetic/compiler_options.hpp": "the check itself",
    "optimizer/adam.hpp": "as in values.hpp",
}

SYSTEM_CLOCK = {
    "extensions/launch/rendezvous/waiting_notice.hpp": "ThreadSanitizer knows no other",
    "extensions/observe/tensorboard.hpp": "a date in a file",
}

# A header that a comment names lies in the comment's folder, or is found from a folder above.
NAMED_HEADER = re.compile(r"(?<![\w./*<-])[\w./-]*\w\.hpp\b")

MAXIMUM_LINES = 400  # without comments: a long explanation does not split a header
COMMENT_COLUMNS = 100
COMMENT = re.compile(r"^\s*//")
WIDE_COMMENT = re.compile(r"^\s*// (NOLINT|clang-format|(expect|expect-gcc|expect-clang|expect-success): )")
COMMENT_FOLDERS = ("tests", "bench", "examples", "tools", "integrations", "cmake")
COMMENT_OF = {".cpp": COMMENT, ".hpp": COMMENT, ".cu": COMMENT, ".h": COMMENT, ".c": COMMENT,
              ".py": re.compile(r"^\s*#"), ".sh": re.compile(r"^\s*#"), ".cmake": re.compile(r"^\s*#")}

# file (or file, header) -> why the rule does not apply there.
LONG_ON_PURPOSE: dict[str, str] = {
    "extensions/elastic/membership.hpp": "one state machine, whose transitions are read together",
}
COSTLY_ON_PURPOSE: dict[tuple[str, str], str] = {}

# -----------------------------------------------------------------------------------------------

STANDARD = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem format forward_list fstream
functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore
set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view
syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray
variant vector version
""".split())
SYSTEM = re.compile(r"^(sys|linux|netinet|arpa|net|bits|asm)/|^(unistd|fcntl|errno|poll|sched|pthread|signal|dlfcn|netdb|"
                    r"time|semaphore|spawn|termios|dirent|limits|stdio|stdlib|string|stdint|stddef|ifaddrs|cxxabi|"
                    r"execinfo|numa|numaif)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

def room_of(header):
    """The room of a path below include/unisono/."""
    return header.split("/", 1)[0] if "/" in header else ""


def extension_of(header):
    """The extension that a header belongs to, or None."""
    parts = header.split("/")
    return parts[1] if parts[0] == "extensions" and len(parts) > 2 else None


def is_concept(header):
    room, _, name = header.partition("/")
    return name in (f"{room}.hpp", "concept.hpp", "concepts.hpp", "archetype.hpp") or header in CONCEPT_HEADERS


def allows(rule, target):
    room, _, kind = rule.partition(":")
    if room == "*" and room_of(target) == "testing":
        return False
    return room in ("*", room_of(target)) and (not kind or is_concept(target))


def third_party_back_end(header):
    return next((prefix for prefix in THIRD_PARTY if header.startswith(prefix)), None)


class Checker:
    def __init__(self, repository):
        self.repository = Path(repository)
        self.root = self.repository / "include" / "unisono"
        self.violations = []
        self.graph = {}

    def report(self, header, line, text):
        self.violations.append(f"include/unisono/{header}:{line}: {text}")

    def run(self):
        headers = sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*.hpp"))
        for header in headers:
            self.check_header(header)
            if room_of(header) == "extensions" and not extension_of(header):
                self.report(header, 1, "lies in no folder of extensions/, so it belongs to no extension")
        self.check_cycles()
        self.check_umbrella()
        self.check_exceptions()
        self.check_comments()
        return len(headers)

    def check_header(self, header):
        lines = (self.root / header).read_text().splitlines()
        own_room = room_of(header)
        if own_room not in MAY_INCLUDE:
            self.report(header, 1, f"room '{own_room}' is not in the table of {Path(__file__).name}")
            return
        for number, line in enumerate(lines, 1):
            if "system_clock" in line and header not in SYSTEM_CLOCK:
                self.report(header, number, "the system's clock can be set while somebody waits; use the steady one")
            if QUOTED.search(line) and header not in OWN_QUOTED:
                self.report(header, number, "found quoted(), which may be std::quoted in a program; write detail::quoted()")
            if header not in OWN_FOLDED and not COMMENT.match(line) and (found := FOLDED.search(line)):
                self.report(header, number, f"{found[0]} may be folded by the compiler; write is_finite, is_nan or has_sign (core/math.hpp)")
        code = sum(not COMMENT.match(text) for text in lines)
        if code > MAXIMUM_LINES and header not in LONG_ON_PURPOSE:
            self.report(header, len(lines),
                        f"{code} lines without comments; past {MAXIMUM_LINES} ask which two ideas live here")
        for number, text in enumerate(lines, 1):
            if COMMENT.match(text) and len(text) > COMMENT_COLUMNS and not WIDE_COMMENT.match(text):
                self.report(header, number, f"a comment of {len(text)} columns; at most {COMMENT_COLUMNS}")
        self.check_names(header, lines)
        self.check_algorithms(header, lines)
        targets = self.graph.setdefault(header, [])
        for number, text in enumerate(lines, 1):
            match = INCLUDE.match(text)
            if not match:
                continue
            quote, name = match.groups()
            if name.startswith("unisono/"):
                target = name.removeprefix("unisono/")
                targets.append((number, target))
                self.check_arrow(header, number, own_room, target)
            elif name.startswith("Unisono "):
                pass  # no file: the text of an error
            elif quote == '"':
                self.report(header, number, f'"{name}": our own headers are included as "unisono/..."')
            else:
                self.check_foreign(header, number, name)

    def check_names(self, header, lines):
        for number, text in enumerate(lines, 1):
            for name in NAMED_HEADER.findall(text.partition("//")[2]):
                own = (self.root / header).parent
                folders = [own, *(folder for folder in own.parents if folder.is_relative_to(self.repository)), self.repository / "tests"]
                if not any((folder / name).is_file() for folder in folders):
                    self.report(header, number, f"names {name}, which is in no folder from here up; write the path below include/unisono/")

    def check_algorithms(self, header, lines):
        if any(INCLUDES_ALGORITHM.match(text) for text in lines):
            return
        for number, text in enumerate(lines, 1):
            if not COMMENT.match(text) and (match := ALGORITHM.search(text)):
                self.report(header, number, f"{match[0]} without <algorithm>, of which core/standard.hpp brings a part")

    def check_comments(self):
        """The width of comments outside of include/; those of headers are checked with them."""
        for path in sorted(path for folder in COMMENT_FOLDERS for path in (self.repository / folder).rglob("*")):
            name = path.relative_to(self.repository).as_posix()
            comment = COMMENT_OF.get(".cmake" if path.name == "CMakeLists.txt" else path.suffix)
            if comment is None or not path.is_file():
                continue
            for number, text in enumerate(path.read_text().splitlines(), 1):
                if comment.match(text) and len(text) > COMMENT_COLUMNS and not WIDE_COMMENT.match(text):
                    self.violations.append(f"{name}:{number}: a comment of {len(text)} columns; "
                                           f"at most {COMMENT_COLUMNS}")

    def check_arrow(self, header, number, own_room, target):
        if not (self.root / target).is_file():
            self.report(header, number, f"unisono/{target} does not exist")
            return
        rules = MAY_INCLUDE[own_room]
        of, to = extension_of(header), extension_of(target)
        if of and to and to != of and to not in BUILT_ON.get(of, []):
            built_on = ", ".join(BUILT_ON.get(of, [])) or "no other"
            self.report(header, number, f"extension {of} must not include unisono/{target}; it is built on {built_on}")
            return
        if of and room_of(target) == "" and target not in PUBLIC_FOR_EXTENSIONS:
            self.report(header, number, f"extension {of} must not include unisono/{target}, which may bring other extensions; "
                                        f"of public headers it may include {', '.join(PUBLIC_FOR_EXTENSIONS)}")
            return
        only_from = ONLY_FROM.get(room_of(target), [own_room])
        if header == UMBRELLA:
            only_from = [own_room] if not to else []
        if (header, target) in EXCEPTIONS:
            return
        if own_room in (*BASE, "compiled") and room_of(target) == "" and target not in BASE_ENTRANCES:
            self.report(header, number, f"{own_room} must not include unisono/{target}, the header of an extension")
            return
        if room_of(target) == own_room or (own_room in only_from and any(allows(rule, target) for rule in rules)):
            return
        allowed = ", ".join(rules).replace("*", "any but testing") or "nothing of ours"
        if own_room not in only_from or header == UMBRELLA and not only_from:
            names = (name or "public headers" for name in ONLY_FROM.get(room_of(target), []))
            allowed += f"; {room_of(target)}/ is included by {', '.join(names)} only"
        self.report(header, number, f"{own_room or 'the umbrella'} must not include unisono/{target}; allowed: {allowed}")

    def check_foreign(self, header, number, name):
        if name in COSTLY or COSTLY_PATTERN.match(name):
            if (header, name) not in COSTLY_ON_PURPOSE:
                self.report(header, number, f"<{name}> is too costly or too particular for a header of ours")
        elif name not in STANDARD and not SYSTEM.match(name):
            prefix = third_party_back_end(header)
            if not prefix or not re.match(THIRD_PARTY[prefix], name):
                self.report(header, number, f"<{name}> is a third party's; allowed only in {', '.join(THIRD_PARTY)}")

    def check_cycles(self):
        done, path = set(), []

        def visit(header):
            if header in path:
                cycle = path[path.index(header):] + [header]
                self.report(header, 1, "include cycle: " + " -> ".join(cycle))
                return
            if header in done:
                return
            path.append(header)
            for _, target in self.graph.get(header, []):
                visit(target)
            path.pop()
            done.add(header)

        for header in sorted(self.graph):
            visit(header)

    def check_reached(self):
        """A program finds each header of an extension by a public one."""
        reached = {header for header in self.graph if room_of(header) == ""}
        queue = sorted(reached)
        while queue:
            new = {target for _, target in self.graph.get(queue.pop(), [])} - reached
            reached |= new
            queue += new
        for header in sorted(self.graph):
            if extension_of(header) and header not in reached:
                self.report(header, 1, "no public header includes it")

    def check_exceptions(self):
        """Each exception is still needed, and their number has not grown."""
        for header, target in EXCEPTIONS:
            if header in self.graph and all(name != target for _, name in self.graph[header]):
                self.report(header, 1, f"does not include unisono/{target} any more: take it off the exceptions")
        if len(EXCEPTIONS) > MOST_EXCEPTIONS:
            self.report(UMBRELLA, 1, f"{len(EXCEPTIONS)} exceptions of the base; at most {MOST_EXCEPTIONS}")

    def check_umbrella(self):
        came_from, queue = {"unisono.hpp": None}, ["unisono.hpp"]
        while queue:
            header = queue.pop()
            for number, target in self.graph.get(header, []):
                if extension_of(target):
                    self.report(header, number, f"the umbrella reaches unisono/{target}, a part of an extension")
                if third_party_back_end(target):
                    self.report(header, number, f"the umbrella reaches unisono/{target}, which needs a third party")
                if target not in came_from:
                    came_from[target] = header
                    queue.append(target)


def main(repository):
    checker = Checker(repository)
    count = checker.run()
    checker.check_reached()
    for violation in checker.violations:
        print(violation)
    print(f"{count} headers, {len(checker.violations)} violations")
    return 1 if checker.violations or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
