#!/usr/bin/env python3
"""Misfortunes of elastic worlds, drawn by seeds: cuts, resets, firewalls, addresses taken over, stops, joins and kills.

    python3 tests/together/namespaces/campaign.py --program build/dev/tests/campaign_rank --trials 1000 --jobs 8
    python3 tests/together/namespaces/campaign.py --program build/dev/tests/campaign_rank --cases all --turns 20 --jobs 8

Each trial is a training of 2 to 5 ranks on 1 to 4 hosts, which are name spaces (this requires root, iproute2 and nft),
or of plain processes. Each update says its membership and its bits. A trial fails

- if two worlds go on: a membership has two lists of members, or one of them commits updates after the next has begun;
- if an update has other bits than the undisturbed training;
- if a process ends with an error that docs/elastic.md does not name, or by a signal that the trial has not sent;
- if a process has not ended `give_up` + 10 s after the last event, and makes no updates either;
- if a majority that no event concerned, and that is connected, does not end well;
- with --cases: if fewer ranks than a quorum end well. A rank that has made the last update, and then finds no majority
  of ranks that have not left, counts as one that ends well.

The command to repeat a trial is printed with it. The moments of events depend on the machine, so a trial may need
several repetitions."""
import argparse, collections, concurrent.futures, ctypes, json, os, random, re, shutil, signal, subprocess, sys, tempfile
import time

PATIENCE, GIVE_UP, UPDATES, SNAPSHOTS = 1.0, 8.0, 90, 4
ERRORS = {"left behind": r"has been left behind|given up by the others|no longer|is left behind",
          "no majority": r"found neither a majority",
          "not reached": r"was in no world for",
          "state lost": r"no rank has the state of|that had the training's state were lost",
          "other's exception": r"left its world because of an exception",
          "not added": r"fault (timeout|refused|closed).*(no rank has left an address|waited|elastic world)",
          "fenced": r"is written by membership"}
NET, PID, UTS, MOUNT = 0x40000000, 0x20000000, 0x04000000, 0x00020000
libc = ctypes.CDLL(None, use_errno=True)


def plan_of(seed):
    """What happens in a trial. A misfortune is (seconds after the one before, what, to whom, for how long)."""
    draw = random.Random(seed)
    plan = {"transport": ("tcp", "hosts")[seed % 2], "spaces": seed % 10 < 8,
            "mode": ("replicated", "checkpoints", "sharded", "replicated")[seed // 2 % 4]}
    ranks = draw.randint(2, 5)
    hosts = draw.randint(min(2, ranks), min(4, ranks)) if plan["spaces"] else 1
    places = list(range(hosts)) + [draw.randrange(hosts) for _ in range(ranks - hosts)]
    plan.update(places=sorted(places), pause_ms=draw.choice((5, 25, 60)), router=plan["spaces"] and draw.random() < 0.3,
                first_at=draw.randint(1, 60), misfortunes=[])
    kinds = ["kill"] * 3 + ["stop"] * 3 + ["join"] * 3
    if plan["spaces"]:
        kinds += ["cut"] * 4 + ["reset"] * 3 + ["reset_pair"] * 3 + ["deaf", "wall_refuses", "wall_drops", "kill_host"]
        kinds += ["router_resets"] * 4 if plan["router"] else ["take_over"] * 2 + ["same_address"] * 2
    for number in range(draw.choice((1, 1, 2, 2, 3, 4))):
        what = draw.choice(kinds)
        after = 0 if number == 0 else draw.choice((0, 0.02, draw.uniform(0, 1), draw.uniform(0, 4)))
        lasts = draw.choice((draw.uniform(0.05, 0.3), draw.uniform(0.3, 3), draw.uniform(3, 9), None))
        whom = [draw.randrange(ranks)] if what in ("kill", "stop") else draw.sample(range(hosts), min(2, hosts))
        plan["misfortunes"].append((round(after, 3), what, whom, lasts and round(lasts, 3)))
    return plan


# Misfortunes of which each has once made two worlds, or ended a majority. The last number is
# that of ranks that must end well.
CASES = {
    "late_cut": ([0, 1, 1, 1], [(0, "cut", [0], 8)], 3),
    "short_cut": ([0, 1, 1, 1], [(0, "cut", [0], 1.5)], 3),
    "reset_pair": ([0, 1, 2], [(0, "reset_pair", [0, 1], None)], 2),
    "router_resets": ([0, 1, 2, 3], [(0, "router_resets", [0], 0.2)], 2),
    "take_over": ([0, 1, 1, 1], [(0, "take_over", [1], 3)], 3),
    "same_address": ([0, 1, 1, 1], [(0, "same_address", [1], 3)], 3),
    "wall_refuses": ([0, 0, 0, 1], [(0, "wall_refuses", [0], None)], 3),
    "wall_drops": ([0, 0, 0, 1], [(0, "wall_drops", [0], None)], 3),
    "wall_refuses_and_kill": ([0, 0, 0, 1], [(0, "wall_refuses", [0], None), (0.5, "kill", [1], None)], 2),
    "wall_drops_and_kill": ([0, 0, 0, 1], [(0, "wall_drops", [0], None), (0.5, "kill", [1], None)], 2),
    "stop_first": ([0, 0, 0, 0], [(0, "stop", [0], None)], 3)}
MODES = ("replicated", "checkpoints", "sharded", "sharded_checkpoints")


def plan_of_case(name):
    """NAME:TRANSPORT:MODE"""
    case, transport, mode = name.split(":")
    places, misfortunes, enough = CASES[case]
    return {"transport": transport, "spaces": max(places) > 0, "mode": mode, "places": places, "pause_ms": 25,
            "router": case.startswith("router"), "first_at": 20, "misfortunes": misfortunes, "enough": enough}


def shell(line, must=True):
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    if must and done.returncode:
        raise RuntimeError(f"{line}: {done.stderr}")
    return done.stdout


def enter(file, kind):
    if libc.setns(file, kind) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def end_with_parent():
    libc.prctl(1, signal.SIGKILL)


class Host:
    """Name spaces of its own for networks, processes, mounts and the host's name. They end with this process."""

    def __init__(self, number, router=False, address=None):
        self.number, bridge = number, "br0"
        self.address = address or (f"10.{80 + number}.0.1" if router else f"10.77.0.{number + 1}")
        line = f"hostname h{number}; ip link set lo up; exec sleep 100000"
        self.keeper = subprocess.Popen(["unshare", "-n", "-p", "-u", "-m", "--fork", "--kill-child", "--mount-proc", "sh",
                                        "-c", line], preexec_fn=end_with_parent)
        self.process = None
        while self.process is None:
            children = open(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children").read().split()
            if children and open(f"/proc/{children[0]}/comm").read().strip() == "sleep":
                self.process = int(children[0])
            time.sleep(0.005)
        self.files = {kind: os.open(f"/proc/{self.process}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
                      for kind, name in ((NET, "net"), (PID, "pid"), (UTS, "uts"), (MOUNT, "mnt"))}
        if router:
            bridge = f"rb{number}"
            shell(f"ip link add {bridge} type bridge; ip link set {bridge} up; "
                  f"ip addr add 10.{80 + number}.0.254/24 dev {bridge}")
        shell(f"ip link add v{number} type veth peer name eth0 netns {self.process}; "
              f"ip link set v{number} master {bridge} up")
        self.run(f"ip addr add {self.address}/24 dev eth0; ip link set eth0 up" +
                 (f"; ip route add default via 10.{80 + number}.0.254" if router else ""))

    def run(self, line, must=True):
        return shell(f'nsenter -t {self.process} -n -- sh -ec "{line}"', must)

    def start(self, command, environment, output):
        own = os.open("/proc/self/ns/pid", os.O_RDONLY)

        def there():
            for kind in (NET, UTS, MOUNT):
                enter(self.files[kind], kind)
        enter(self.files[PID], PID)
        try:
            return subprocess.Popen(command, env=environment, preexec_fn=there, stdout=output, stderr=output)
        finally:
            enter(own, PID)
            os.close(own)


class Trial:
    def __init__(self, seed, plan, program, folder, bits):
        self.seed, self.plan, self.program, self.folder, self.bits = seed, plan, program, folder, bits
        self.processes, self.killed, self.stopped, self.rules = {}, set(), {}, 0
        self.events, self.wrong = [], []
        os.makedirs(f"{folder}/desk", mode=0o700)
        os.makedirs(f"{folder}/meet", mode=0o700)
        self.hosts = []
        if self.plan["spaces"]:
            shell("ip link set lo up; ip link add br0 type bridge; ip link set br0 up")
            if self.plan["router"]:
                open("/proc/sys/net/ipv4/ip_forward", "w").write("1")
            self.hosts = [Host(each, self.plan["router"]) for each in range(max(self.plan["places"]) + 1)]

    def note(self, what):
        self.last = time.monotonic()
        self.events.append(f"{self.last * 1000:.0f} ms: {what}")

    def start(self, number, place, more):
        plan = self.plan
        command = [self.program, plan["transport"], plan["mode"], str(int(PATIENCE * 1000)), str(int(GIVE_UP * 1000)),
                   str(plan["pause_ms"]), f"{self.folder}/checkpoints"]
        environment = {"PATH": os.environ["PATH"], "UNISONO_ELASTIC_FOLDER": f"{self.folder}/desk", **more}
        output = open(f"{self.folder}/rank{number}", "w")
        if self.hosts:
            self.processes[number] = self.hosts[place].start(command, environment, output)
        else:
            self.processes[number] = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def begin(self):
        places = self.plan["places"]
        for rank, place in enumerate(places):
            meeting = ({"MASTER_ADDR": self.hosts[places[0]].address, "MASTER_PORT": "29500"} if self.hosts else
                       {"UNISONO_FOLDER": f"{self.folder}/meet", "UNISONO_JOB": "campaign"})
            self.start(rank, place, {"UNISONO_RANK": str(rank), "UNISONO_WORLD_SIZE": str(len(places)),
                                     "UNISONO_LOCAL_RANK": str(places[:rank].count(place)),
                                     "UNISONO_LOCAL_WORLD_SIZE": str(places.count(place)),
                                     "UNISONO_TOKEN": "000102030405060708090a0b0c0d0e0f", **meeting})

    def said(self, number):
        with open(f"{self.folder}/rank{number}", errors="replace") as lines:
            return lines.read().split("\n")

    def running(self):
        return [each for each, process in self.processes.items() if process.poll() is None]

    def firewall(self, hosts, rules):
        """Installs rules on hosts, and returns what removes them."""
        self.rules += 1
        name = f"f{self.rules}"
        for host in hosts:
            host.run(f"nft add table ip {name}; "
                     f"nft add chain ip {name} i '{{ type filter hook input priority 0 ; policy accept ; }}'; "
                     f"nft add chain ip {name} o '{{ type filter hook output priority 0 ; }}'; " +
                     "; ".join(f"nft add rule ip {name} {rule(host)}" for rule in rules))
        return lambda: [host.run(f"nft delete table ip {name}") for host in hosts]

    def cut(self, host):
        shell(f"ip link set v{host} down")
        return lambda: shell(f"ip link set v{host} up")

    def take_over(self, host, has_cable):
        mend = (lambda: None) if has_cable else self.cut(host.number)
        self.rules += 1
        other = Host(20 + self.rules, address=f"10.77.0.{100 + self.rules}")
        other.run(f"ip addr add {host.address}/24 dev eth0")
        address = other.run("cat /sys/class/net/eth0/address").strip()
        others = [each for each in self.hosts if each is not host]
        for each in others:
            each.run(f"ip neigh replace {host.address} lladdr {address} dev eth0")

        def give_back():
            other.keeper.kill()
            other.keeper.wait()
            mend()
            for each in others:
                each.run("ip neigh flush all", False)
        return give_back

    def strike(self, what, whom):
        """Makes a misfortune, and returns what ends it, or None."""
        established = "i ct state established,related accept"
        refuse = "i iif eth0 ip protocol tcp reject with tcp reset"
        hosts = [self.hosts[each] for each in whom] if self.hosts and what not in ("kill", "stop") else []
        if what == "kill" or what == "kill_host":
            for each in whom if what == "kill" else [n for n, p in enumerate(self.plan["places"]) if p == whom[0]]:
                if self.processes[each].poll() is None:
                    self.processes[each].kill()
                    self.killed.add(each)
            return None
        if what == "stop":
            if self.processes[whom[0]].poll() is not None:
                return None
            self.processes[whom[0]].send_signal(signal.SIGSTOP)
            self.stopped[whom[0]] = self.stopped.get(whom[0], 0) + 1

            def resume():
                self.stopped[whom[0]] -= 1
                if self.stopped[whom[0]] == 0:
                    self.processes[whom[0]].send_signal(signal.SIGCONT)
            return resume
        if what == "join":
            self.start(len(self.processes), whom[0], {"UNISONO_JOINS": "1"})
            return None
        if what == "cut":
            return self.cut(whom[0])
        if what == "reset":
            return self.firewall(hosts[:1], [lambda host: "i tcp flags rst accept", lambda host: refuse])
        if what == "reset_pair":
            first, last = hosts[0], hosts[-1]
            of_other = lambda host: (last if host is first else first).address
            return self.firewall([first, last], [lambda host: "i tcp flags rst accept",
                                 lambda host: f"i ip saddr {of_other(host)} ip protocol tcp reject with tcp reset"])
        if what == "deaf":
            return self.firewall(hosts[:1], [lambda host: "i iif eth0 drop"])
        if what.startswith("wall_"):
            end = lambda host: "i iif eth0 drop" if what == "wall_drops" else refuse
            return self.firewall(hosts[:1], [lambda host: established, end, lambda host: "o ct state new accept"])
        if what == "router_resets":
            shell("nft add table ip r; nft add chain ip r p '{ type filter hook forward priority 0 ; }'; "
                  "nft add rule ip r p ip protocol tcp reject with tcp reset")
            return lambda: shell("nft flush chain ip r p")
        return self.take_over(hosts[0], what == "same_address")

    def run(self):
        self.began = self.last = time.monotonic()
        self.begin()
        places, pending, ends = self.plan["places"], list(self.plan["misfortunes"]), []
        due = None
        mark = re.compile(r"^\d+ ms: update (\d+) ")
        slowest = 0
        while self.running():
            now = time.monotonic()
            if due is None:
                seen = [int(mark.search(line).group(1)) for each in range(len(places)) for line in self.said(each)[-3:-1]
                        if mark.search(line)]
                if seen and max(seen) >= self.plan["first_at"]:
                    due = now
            while pending and due is not None and now >= due:
                _, what, whom, lasts = pending.pop(0)
                end = self.strike(what, whom)
                self.note(f"{what} {whom}" + (f" for {lasts} s" if end and lasts else ""))
                if end:
                    ends.append((now + lasts if lasts else None, f"end of {what} {whom}", end))
                due = now + pending[0][0] if pending else None
                if not pending:
                    due = float("inf")
            for one in [each for each in ends if each[0] is not None and now >= each[0]]:
                ends.remove(one)
                one[2]()
                self.note(one[1])
            running = self.running()
            if running and all(self.stopped.get(each, 0) > 0 for each in running):
                for one in [each for each in ends if each[1].startswith("end of stop")]:
                    ends.remove(one)
                    one[2]()
                    self.note(one[1] + ", since all others have ended")
            if now - self.last > GIVE_UP + 10 and not any(each[0] for each in ends):
                limbo = [each for each in running if self.stopped.get(each, 0) == 0]
                times = [float(line.split()[0]) / 1000 for each in limbo for line in self.said(each)[-9:]
                         if mark.search(line)]
                if limbo and now - max(times, default=0) > GIVE_UP + 10:
                    self.wrong.append(f"no end: rank {limbo} {now - self.last:.1f} s after the last event")
                    break
            time.sleep(0.005)
        slowest = time.monotonic() - self.last
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        result = {"seed": self.seed, "plan": self.plan, "events": self.events, "slowest": slowest, **self.judge()}
        result["wrong"] = self.wrong
        return result

    def judge(self):
        """What is wrong, and how each process has ended."""
        members, first, last, ends, last_of = {}, {}, {}, {}, {}
        form = re.compile(r"\d+ ms: update (\d+) membership (\d+) of (\S+) at number (\d+) bits (\d+)$")
        for number, process in self.processes.items():
            lines = self.said(number)
            for line in lines:
                if not (found := form.match(line)):
                    continue
                update, epoch, who, me, bits = int(found[1]), int(found[2]), *found.group(3, 4, 5)
                if members.setdefault(epoch, who) != who:
                    self.wrong.append(f"two worlds: membership {epoch} is {members[epoch]} and {who}")
                if me not in who.split(","):
                    self.wrong.append(f"process {number} is not in its membership {epoch} of {who}")
                if bits != self.bits[update - 1]:
                    self.wrong.append(f"wrong bits: rank {number}, update {update}")
                first[epoch] = min(first.get(epoch, update), update)
                last[epoch] = max(last.get(epoch, update), update)
                last_of[number] = max(last_of.get(number, 0), update)
            status = process.returncode
            fault = next((line for line in lines if re.match(r"\d+ ms: (fault|threw) ", line)), "")
            if status == 0 and any(line.endswith(" ms: done") for line in lines):
                ends[number] = "done"
            elif status == -signal.SIGKILL and (number in self.killed or any("no end" in each for each in self.wrong)):
                ends[number] = "killed"
            else:
                kind = next((kind for kind, text in ERRORS.items() if status == 1 and re.search(text, fault)), None)
                ends[number] = kind or "unknown"
                if kind is None or (kind == "not added" and number < len(self.plan["places"])) or (
                        kind == "other's exception" and not self.plan["mode"].startswith("sharded")):
                    self.wrong.append(f"unknown end: rank {number}, status {status}: {fault or lines[-3:]}")
        for number in ends:
            if ends[number] == "no majority" and last_of.get(number) == UPDATES:
                ends[number] = "no majority after the last update"
        fine = ("done", "state lost", "other's exception", "no majority after the last update")
        well = sum(end in fine for end in ends.values())
        if well < self.plan.get("enough", 0):
            self.wrong.append(f"{well} ranks end well; expected {self.plan['enough']}")
        back = SNAPSHOTS + 1 if self.plan["mode"].startswith("sharded") else 0
        for epoch in last:
            for later in (each for each in first if each > epoch):
                if last[epoch] > first[later] + back:
                    self.wrong.append(f"two worlds: membership {epoch} committed update {last[epoch]}, and "
                                      f"{later} began with update {first[later]}")
        return {"ends": ends, "memberships": len(members), "expected": self.expect_majority(ends)}

    def expect_majority(self, ends):
        """Whether a connected majority was left out by all events. It must end well."""
        places = self.plan["places"]
        struck, apart = set(), False
        for _, what, whom, _ in self.plan["misfortunes"]:
            if what == "join":
                return False
            if what in ("kill", "stop"):
                struck.add(whom[0])
            elif what == "router_resets":
                apart = True
            else:
                touched = whom if what == "reset_pair" else whom[:1]
                struck.update(rank for rank, place in enumerate(places) if place in touched)
        for host in set(places) if apart else [None]:
            rest = [rank for rank, place in enumerate(places) if rank not in struck and host in (None, place)]
            if 2 * len(rest) > len(places):
                if any(ends[rank] not in ("done", "state lost", "other's exception") for rank in rest):
                    self.wrong.append(f"a majority that was not struck, {rest}, did not end well")
                return True
        return False


def plan_for(trial):
    return plan_of(trial) if isinstance(trial, int) else plan_of_case(trial.split("/")[0])


def arguments_of(trial):
    if isinstance(trial, int):
        return ["--first", str(trial)]
    return ["--cases", trial.split("/")[0]]


def repeat(arguments, trial):
    return (f"python3 {os.path.relpath(__file__)} --program {os.path.relpath(arguments.program)} "
            f"{' '.join(arguments_of(trial))} {'--trials' if isinstance(trial, int) else '--turns'} 1 --keep")


def trials_of(arguments):
    """Seeds; or NAME:TRANSPORT:MODE/TURN for each case."""
    if not arguments.cases:
        return list(range(arguments.first, arguments.first + arguments.trials))
    found = []
    for words in arguments.cases.split(","):
        case, transport, mode = (words.split(":") + ["all", "all"])[:3]
        found += [f"{one}:{over}:{how}" for one in CASES if case in (one, "all")
                  for over in ("tcp", "hosts") if transport in (over, "all") for how in MODES if mode in (how, "all")]
    if not found:
        sys.exit(f"found --cases {arguments.cases}; expected NAME[:TRANSPORT[:MODE]],... of {', '.join(CASES)} or all; "
                 f"tcp, hosts or all; {', '.join(MODES)} or all")
    return [f"{one}/{turn}" for turn in range(arguments.turns) for one in found]


def try_one(arguments, folder, seed):
    own = f"{folder}/{str(seed).replace('/', ':')}"
    os.makedirs(own)
    command = [sys.executable, os.path.abspath(__file__), "--program", arguments.program, "--child", own,
               *arguments_of(seed)]
    if plan_for(seed)["spaces"]:
        command = ["unshare", "-n"] + command
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return {"seed": seed, "wrong": ["the trial itself failed: " + done.stderr[-600:]], "broken": True}
    if not result["wrong"] and not arguments.keep:
        shutil.rmtree(own)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="campaign_rank (helper/campaign_rank.cpp)")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--trials", type=int, default=20, help="how many seeds")
    parser.add_argument("--cases", help="NAME[:TRANSPORT[:MODE]],... instead of seeds: " + ", ".join(CASES) + " or all; "
                        "tcp, hosts or all; " + ", ".join(MODES) + " or all")
    parser.add_argument("--turns", type=int, default=20, help="how often each case is tried")
    parser.add_argument("--jobs", type=int, default=4, help="trials at a time")
    parser.add_argument("--keep", action="store_true", help="keep what each rank said, and tell each trial's events")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.program = os.path.abspath(arguments.program)
    if arguments.child:
        bits = open(os.path.dirname(arguments.child) + "/bits").read().split()
        trial = arguments.cases or arguments.first
        print(json.dumps(Trial(trial, plan_for(trial), arguments.program, arguments.child, bits).run()))
        return 0
    able = subprocess.run("unshare -n sh -c 'ip link add a0 type veth peer name b0 && ip link add br0 type bridge && "
                          "nft list tables'", shell=True, capture_output=True).returncode == 0
    seeds = [seed for seed in trials_of(arguments) if able or not plan_for(seed)["spaces"]]
    if not able:
        print("skipped in part: hosts that are name spaces (they require root, iproute2 and nft); only processes")
    folder = tempfile.mkdtemp(prefix="campaign")
    alone = subprocess.run([arguments.program, "tcp", "replicated", "1000", "8000", "0", folder], text=True,
                           capture_output=True, env={"PATH": os.environ["PATH"]})
    bits = re.findall(r"bits (\d+)", alone.stdout)
    if len(bits) != UPDATES:
        sys.exit(f"the undisturbed training failed: {alone.stdout}{alone.stderr}")
    open(f"{folder}/bits", "w").write("\n".join(bits))
    sums, slowest, failed, changes = collections.defaultdict(collections.Counter), 0, 0, 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(lambda seed: try_one(arguments, folder, seed), seeds):
            if result["wrong"] or arguments.keep:
                print(f"seed {result['seed']}: {result.get('plan')}")
                for line in result.get("events", []) + [f"ends: {result.get('ends')}"] + result["wrong"]:
                    print(f"  {line}")
                print(f"  repeat: {repeat(arguments, result['seed'])}", flush=True)
            failed += 1 if result["wrong"] else 0
            if "plan" not in result:
                continue
            plan = result["plan"]
            kind = str(result["seed"]) if arguments.cases else "name spaces" if plan["spaces"] else "processes"
            row = sums[f"{plan['transport']}, {plan['mode']}, {kind.split(':')[0]}"]
            row["failed"] += 1 if result["wrong"] else 0
            row["trials"] += 1
            row.update(f"rank {kind}" for kind in result["ends"].values())
            row["memberships"] += result["memberships"]
            row.update("event " + line.split()[2] for line in result["events"] if "end of" not in line)
            row["majority expected"] += result["expected"]
            slowest = max(slowest, result["slowest"])
    for kind in sorted(sums):
        print(kind + ": " + ", ".join(f"{count} {what}" for what, count in sorted(sums[kind].items())))
    total = sum(sums.values(), collections.Counter())
    print("all: " + ", ".join(f"{count} {what}" for what, count in sorted(total.items())))
    print(f"{len(seeds)} trials, {failed} failed; the last process ended at most {slowest:.1f} s after the last event "
          f"(give_up is {GIVE_UP:.0f} s)")
    if failed == 0 and not arguments.keep:
        shutil.rmtree(folder)
    elif failed or arguments.keep:
        print(f"what the ranks said is in {folder}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
