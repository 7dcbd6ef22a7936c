#!/usr/bin/env python3
"""Unisono's networks beside Open MPI, MPICH, Gloo and raw sockets, as processes that reach each other over TCP alone.

Over the loopback, and with --namespaces between two network name spaces joined by a bridge, which stand for two hosts (the
ranks lie on them in blocks). run.sh builds all and starts it. How turns are given is in bench/support/contest.py; what is
measured, and how results are verified, in bench/peers/contenders/contender.hpp, the same for all.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))
import contest
from contenders import Failed
from contest import geometric_mean, in_words, print_row

COLLECTIVES = ["all_reduce", "send"]
SIZES = [8, 64, 256] + [1024 * 4**k for k in range(9)]
OURS = ["tcp", "libfabric"]
PEERS = ["openmpi", "mpich", "gloo"]
NAMES = {"tcp": "Tcp", "libfabric": "Libfabric", "openmpi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo",
         "socket": "raw socket"}
PROOF_BYTES = 256 << 10
LARGE = 16 << 20

# mpirun calls this instead of ssh: AGENT [OPTIONS] ADDRESS COMMAND... runs COMMAND there, on a host
# with a name of its own.
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
case $host in
%s
*) echo "no such host: $host" >&2; exit 1 ;;
esac
exec nsenter --net="$space" unshare --uts sh -c 'hostname "$0"; exec sh -c "$*"' "host-$host" "$@"
"""


FLOW_CLASSES = 256
# Classic BPF that assigns a flow to a class: the sum of its two ports, halved because the system
# assigns every second port.
FLOW_FILTER = (f"8,40 0 0 {2**32 - 2**20 + 20},7 0 0 0,40 0 0 {2**32 - 2**20 + 22},12 0 0 0,116 0 0 1,"
               f"84 0 0 {FLOW_CLASSES - 1},4 0 0 {0x10001},22 0 0 0")


def limit_flows(space, megabits):
    """Each TCP connection that leaves a name space is limited to this number of megabits a second, as a cloud limits a flow."""
    lines = ["qdisc add dev eth0 root handle 1: htb default 1"]
    lines += [f"class add dev eth0 parent 1: classid 1:{number:x} htb rate {megabits}mbit quantum 60000"
              for number in range(1, FLOW_CLASSES + 1)]
    lines.append(f"filter add dev eth0 parent 1: bpf bytecode '{FLOW_FILTER}' flowid 1:1")
    tc = shutil.which("tc", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not tc:
        raise Failed("there is no tc")
    done = subprocess.run(["nsenter", f"--net={space}", tc, "-batch", "-"], input="\n".join(lines), text=True,
                          capture_output=True)
    if done.returncode != 0:
        raise Failed(f"this kernel limits no flows: {done.stderr.strip()}")


class Hosts:
    """Two network name spaces, as long as the helper lives that made them."""

    def __init__(self, programs, place, flow_megabits=None):
        missing = [tool for tool in ("nsenter", "unshare", "ip") if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
        if missing:
            raise Failed(f"there is no {missing[0]}")
        self.helper = subprocess.Popen([str(programs / "network_lab"), "2"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        lines = [self.helper.stdout.readline().strip() for _ in range(2)]
        if not all(line.startswith("/") for line in lines):
            self.close()
            raise Failed(" ".join(lines).strip() or "the helper that makes them gave up")
        self.all = [line.split() for line in lines]  # (file, address)
        if flow_megabits:
            for space, _ in self.all:
                limit_flows(space, flow_megabits)
        cases = "\n".join(f"{address}) space={shlex.quote(space)} ;;" for space, address in self.all)
        self.agent = place / "agent"
        self.agent.write_text(AGENT % cases)
        self.agent.chmod(0o700)

    def variables(self):
        return {"BENCH_HOSTS": " ".join(f"{space} {address}" for space, address in self.all)}

    def addresses(self):
        return [address for _, address in self.all]

    def on_first(self, command):
        return [str(self.agent), self.all[0][1], "exec", *map(shlex.quote, command)]

    def close(self):
        self.helper.stdin.close()
        try:
            self.helper.wait(10)
        except subprocess.TimeoutExpired:
            self.helper.kill()
            self.helper.wait()


class NetworkContest(contest.Contest):
    ours = OURS
    peers = PEERS
    floor = "socket"
    excused = ("gloo",)
    names = NAMES

    def __init__(self, programs, hosts):
        self.programs, self.hosts = programs, hosts
        self.interface = "eth0" if hosts else "lo"

    def launch(self, name, ranks, cores):
        connections = int(name[3:] or 1) if name.startswith("tcp") else 1
        program = self.programs / ("peers_tcp" if name.startswith("tcp") else f"peers_{name}")
        if not program.exists():
            return None, f"it was not built, since its library was not found ({program})"
        variables = (self.hosts.variables() if self.hosts else {}) | {"UNISONO_TCP_CONNECTIONS": str(connections)}
        if name == "mpich":
            return self.launch_mpich(str(program), ranks, cores)
        if name == "openmpi":
            return self.launch_openmpi(str(program), ranks, cores)
        return [str(program)], {"variables": variables}

    def launch_openmpi(self, program, ranks, cores):
        run = contest.launcher_of_openmpi()
        if not run:
            return None, "its mpirun was not found"
        command = [run, *contest.openmpi_options(ranks, cores), "--mca", "pml", "ob1", "--mca", "btl", "self,tcp",
                   "--mca", "btl_tcp_if_include", self.interface]
        if not self.hosts:
            return command + [program], {}
        slots = -(-ranks // 2)
        command += ["--mca", "oob_tcp_if_include", self.interface, "--mca", "plm_rsh_agent", str(self.hosts.agent),
                    "--host", ",".join(f"{address}:{slots}" for address in self.hosts.addresses()), program]
        return self.hosts.on_first(command), {}

    def launch_mpich(self, program, ranks, cores):
        if ranks > cores:
            return None, f"with {ranks} ranks on {cores} cores it takes milliseconds for a byte"
        run = contest.launcher_of_mpich()
        if not run:
            return None, "its mpirun was not found"
        # For either library that it may be built over; Debian's has UCX.
        only_tcp = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "self,tcp", "UCX_NET_DEVICES": self.interface,
                    "FI_PROVIDER": "tcp"}
        command = [run, "-n", str(ranks)]
        if not self.hosts:
            return command + [program], {"variables": only_tcp}
        command += ["-launcher", "ssh", "-launcher-exec", str(self.hosts.agent), "-iface", self.interface, "-ppn",
                    str(-(-ranks // 2)), "-hosts", ",".join(self.hosts.addresses()), program]
        return self.hosts.on_first(command), {"variables": only_tcp}

    def prove(self, contender):
        """That it sends over the network, and not through memory: the interface counts."""
        before = self.bytes_received()
        contender.order(f"prepare all_reduce {PROOF_BYTES}")
        went = self.bytes_received() - before
        contender.order("drop")
        if went < PROOF_BYTES:
            contender.stop()
            raise Failed(f"{contender.title}: of an all_reduce of {PROOF_BYTES} bytes {went} came over {self.interface}: it "
                         "has another way, and is left out", contender)

    def bytes_received(self):
        command = ["cat", "/proc/net/dev"]
        text = subprocess.run(self.hosts.on_first(command) if self.hosts else command, capture_output=True, text=True,
                              check=True).stdout
        line = next(line for line in text.splitlines() if line.strip().startswith(self.interface + ":"))
        return int(line.split(":")[1].split()[0])

    def add_ratios(self, result):
        best = result["contenders"]
        peer = self.fastest_peer(best, PEERS)
        result["ours"] = {}
        for name in OURS:
            if name not in best:
                continue
            mine = result["ours"][name] = {}
            if peer:
                mine["fastest"] = {"peer": peer} | contest.over(best, peer, name)
            if "socket" in best:
                mine["of_raw_socket"] = contest.over(best, "socket", name)  # 1: as fast


class Table:
    def __init__(self, where):
        self.where = where

    def header(self, collective, ranks, names):
        what = "one message, one way" if collective == "send" else collective
        print(f"\n-- {what}, {ranks} processes, {self.where}; us, and how many times as fast as the fastest peer and as the "
              "raw socket, medians and paired")
        columns = ["size"] + [column for name in OURS if name in names for column in (NAMES[name], "spread")]
        columns += [NAMES[name] for name in PEERS + ["socket"] if name in names]
        for name in OURS:
            if name in names:
                columns += [f"{NAMES[name]}/peer", "paired", "/raw", "paired"]
        print_row(columns + (["MB/s " + NAMES["tcp"]] if collective == "send" else []) + ["round trip"])

    def row(self, result, names):
        best = result["contenders"]
        cells = [in_words(result["bytes"])]
        for name in OURS:
            if name in names:
                cells += [f"{best[name]['median_us']:.2f}", f"{best[name]['spread'] * 100:.0f} %"]
        cells += [f"{best[name]['median_us']:.2f}" if name in best else "-" for name in PEERS + ["socket"] if name in names]
        for name in OURS:
            if name not in names:
                continue
            for key in ("fastest", "of_raw_socket"):
                ratio = result["ours"][name].get(key)
                cells += [f"{ratio['ratio']:.2f} x", f"{ratio['paired_ratio']:.2f} x"] if ratio else ["-", "-"]
        if result["collective"] == "send":
            cells.append(f"{result['bytes'] / best['tcp']['median_us']:.0f}")
        print_row(cells + [f"{result['round_trip_ns']:.0f} ns"])


def summarise(results):
    """Per place, collective, world and transport: the mean over the sizes, the least, and what raw sockets do from 16 MiB on."""
    summary = []
    for where in dict.fromkeys(one["where"] for one in results):
        for collective in COLLECTIVES:
            for ranks in sorted({one["ranks"] for one in results}):
                for name in OURS:
                    mine = [one for one in results if (one["where"], one["collective"], one["ranks"]) ==
                            (where, collective, ranks) and name in one["ours"]]
                    entry = {"where": where, "collective": collective, "ranks": ranks, "ours": name}
                    for key, least_bytes in (("all", 0), ("from_1_kib", 1024)):
                        there = [one for one in mine if "fastest" in one["ours"][name] and one["bytes"] >= least_bytes]
                        if there:
                            ratios = [one["ours"][name]["fastest"]["paired_ratio"] for one in there]
                            least = there[ratios.index(min(ratios))]
                            entry[key] = {"geometric_mean": geometric_mean(ratios), "least": min(ratios),
                                          "least_bytes": least["bytes"], "least_to": least["ours"][name]["fastest"]["peer"]}
                    large = [one["ours"][name]["of_raw_socket"]["paired_ratio"] for one in mine
                             if "of_raw_socket" in one["ours"][name] and one["bytes"] >= LARGE]
                    if large:
                        entry["least_of_raw_socket"] = min(large)
                    if len(entry) > 4:
                        summary.append(entry)
    return summary


def print_summary(summary):
    print("\n-- times as fast as the fastest peer, paired: mean over the sizes (geometric), and the least; and as the raw socket, "
          "from 16 MiB the least")
    print_row(["ranks", "collective", "where", "ours", "mean", "least", "at", "next to", "mean 1 K+", "least 1 K+",
               "raw, 16 M+"])
    for entry in summary:
        cells = [str(entry["ranks"]), entry["collective"], entry["where"], NAMES[entry["ours"]]]
        every, large = entry.get("all"), entry.get("from_1_kib")
        cells += [f"{every['geometric_mean']:.2f} x", f"{every['least']:.2f} x", in_words(every["least_bytes"]),
                  NAMES[every["least_to"]]] if every else ["-"] * 4
        cells += [f"{large['geometric_mean']:.2f} x", f"{large['least']:.2f} x"] if large else ["-"] * 2
        raw = entry.get("least_of_raw_socket")
        print_row(cells + [f"{raw:.2f} x" if raw else "-"])


def settings_of(quick):
    """How long a turn and a case take; a case is over after `least_rounds` at the earliest."""
    if quick:
        return {"turn_s": 0.002, "least_rounds": 2, "case_s": lambda *_: 0, "sizes": [8, 4096, 256 << 10, 4 << 20]}
    return {"turn_s": 0.01, "least_rounds": 5, "case_s": lambda _, size: 2 if size <= 1 << 20 else 5, "sizes": SIZES}


def compare(arguments, place):
    settings = settings_of(arguments.quick)
    programs = Path(arguments.programs)
    begin = time.monotonic()
    results, failures, machine = [], [], None
    places = [] if arguments.only_namespaces else ["loopback"]
    places += ["namespaces"] if arguments.namespaces or arguments.only_namespaces else []
    for where in places:
        hosts = None
        own = place / where
        own.mkdir(0o700)
        if where == "namespaces":
            try:
                hosts = Hosts(programs, own, arguments.flow_megabits)
            except (Failed, OSError) as failed:
                print(f"\nhosts that are network name spaces are left out: {failed}")
                continue
        names = [name for name in OURS + PEERS + ["socket"] if name not in arguments.without]
        some, failed, found = contest.run(NetworkContest(programs, hosts), names, arguments.collectives,
                                          arguments.ranks, arguments.sizes or settings["sizes"], settings, own,
                                          Table(where))
        results += [{"where": where} | one for one in some]
        failures += failed
        machine = machine or found
        if hosts:
            hosts.close()
    summary = summarise(results)
    print_summary(summary)
    pictures = {"" if where == places[0] else f"_{where}": [one for one in results if one["where"] == where] for where in places}
    return contest.finish("network", arguments, (results, failures, machine), summary, begin, NAMES, pictures)


def main():
    parser = contest.parser_of(__doc__.splitlines()[0], COLLECTIVES, [2, 4])
    parser.add_argument("--namespaces", action="store_true", help="also between two network name spaces (needs root)")
    parser.add_argument("--only-namespaces", action="store_true", help="not over the loopback")
    parser.add_argument("--flow-megabits", type=int, help="of the name spaces' connections, each alone and each way")
    parser.add_argument("--connections", type=int, nargs="+", default=[],
                        help="further contenders: Tcp with these numbers of connections to a peer")
    parser.add_argument("--without", nargs="+", default=[], choices=OURS[1:] + PEERS, help="who takes no part")
    arguments = contest.parse(parser)
    for number in arguments.connections:
        OURS.append(f"tcp{number}")
        NAMES[f"tcp{number}"] = f"Tcp, {number}"
    with contest.meeting_place() as place:
        return compare(arguments, Path(place))


if __name__ == "__main__":
    sys.exit(main())
