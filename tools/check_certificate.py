"""Checks certificates of schedules (docs/schedules.md). Shares no code with the library that wrote them.

Each result is the promised sum of every contribution, once. Input is never written, nothing is read before it is
written, no step touches what another step of its round receives. Messages match, channels of `channel_depth` messages
suffice and no smaller ones do. Scratch memory and cost are as promised. Mapped steps have no data race."""
import collections, functools, json, sys
# A step: peer, source, target, number, flag. q: a peer or all ranks, s: a source or nothing.
# USE has input and output: all blocks, its own, all at the root, none.
KINDS = {"send": "pSn", "receive": "pTn", "receive_combine": "pSTn", "copy": "ST", "combine_ranks": "ST", "post": "s",
         "await": "qf", "combine_peers": "qST", "copy_from_peer": "pST"}
USE = dict(all_reduce="aa", reduce_scatter="ao", all_gather="oa", broadcast="na", reduce="ar", gather="or",
           scatter="ro", all_to_all="aa", barrier="nn")
def demand(condition, *why):
    if not condition:
        raise ValueError(*why)
def number(value, least=0, below=1 << 31):
    demand(type(value) is int and least <= value < below, "expected a number, found", value)
    return value
def run_of(blocks):
    return (blocks[3], blocks[1] - blocks[4]) if blocks[0] in ("scratch", "posted") else None
class Certificate:
    def __init__(self, lines):
        head, self.memory, self.results = lines[0], {}, [line for line in lines[1:] if "rank" not in line]
        self.what, self.world, self.blocks = head["collective"], number(head["world"], 1), number(head["blocks"])
        self.root, self.depth = number(head["root"], 0, self.world), number(head["channel_depth"])
        demand(self.root == 0 or self.what in ("broadcast", "reduce", "gather", "scatter"), "it has no root")
        self.promises = [line for line in lines if "rank" in line]
        demand([line["rank"] for line in self.promises] == list(range(self.world)), "expected", self.world, "ranks")
        self.ranks = [[list(map(self.parse, steps)) for steps in line["rounds"]] for line in self.promises]
        self.used, self.cost = [0] * self.world, [collections.defaultdict(int) for _ in self.ranks]
        for cost, rounds in zip(self.cost, self.ranks):
            cost["rounds"] = sum(any(s[0] == "await" or "n" in KINDS[s[0]] for s in steps) for steps in rounds)
            sent = [step[2][2] for step in sum(rounds, []) if step[0] == "send"]
            cost.update(messages=len(sent), blocks_sent=sum(sent), blocks_combined=0)
        where = "output" if self.what == "broadcast" else "input"
        self.places = [(rank, block) for rank in range(self.world) for block in range(self.blocks)]
        for rank, block in self.places:
            if self.holds(0, rank, block) or (where == "output" and rank == self.root):
                self.memory[rank, where, block] = (block, 1 << rank, str(rank), rank), None
    def holds(self, which, rank, block):
        return {"a": True, "o": block == rank, "r": rank == self.root, "n": False}[USE[self.what][which]]
    def parse(self, step):
        kind, peer, source, target, part = step
        form = KINDS[kind]
        number(peer, 0 if "p" in form else -1, self.world if "p" in form or "q" in form else 0)
        number(part, 0, 256 if set(form) & set("nf") else 1)
        demand(("S" in form) <= bool(source) <= ("s" in form.lower()) and bool(target) == ("T" in form), "wrong", step)
        for blocks in filter(None, (source, target)):
            where, first, count, slot, ahead = blocks
            demand(number(first) + number(count) <= self.blocks and number(ahead) <= first, "no such blocks", blocks)
            demand(where == "scratch" or number(slot) == 0 or kind == "combine_ranks", "a slot of what is not scratch")
            demand(where in ("scratch", "posted") or (where in ("input", "output") and ahead == 0), "wrong memory")
        demand(not target or not target[2] or target[0] in ("output", "scratch"), "writes to the", target and target[0])
        least = 1 + (self.what == "all_to_all")
        demand(not (source and target) or source[least:3] == target[least:3], "different blocks")
        return kind, peer, source and tuple(source), target and tuple(target), part
    def cells(self, rank, blocks):
        where, first, count, slot, ahead = blocks
        if where == "scratch":
            self.used[rank] = max(self.used[rank], slot + ahead + count)
            return [(rank, where, slot + ahead + i) for i in range(count)]
        for block in range(first, first + count):
            demand(where == "posted" or self.holds(where == "output", rank, block), rank, "has no", where, block)
        return [(rank, where, block) for block in range(first, first + count)]
    def read(self, rank, blocks, busy=()):
        cells, run = self.cells(rank, blocks), run_of(blocks)
        for cell in cells:
            demand(cell not in busy and self.memory[cell][1] == run, "reads what is received or not written:", cell)
        return [self.memory[cell][0] for cell in cells]
    def write(self, rank, blocks, values):
        run, end = run_of(blocks), blocks[3] + blocks[4] + blocks[2]
        for slot in range(blocks[3], self.promises[rank]["scratch_slots"] * (blocks[0] == "scratch") * bool(blocks[2])):
            other = self.memory.get((rank, "scratch", slot), (None, run))[1]
            if other != run and other[0] < end:  # another packed run, which may share bytes with this one
                del self.memory[rank, "scratch", slot]
        self.memory.update((cell, (value, run)) for cell, value in zip(self.cells(rank, blocks), values))
    def add(self, rank, a, b):
        demand(a[0] == b[0], "adds block", a[0], "to block", b[0])
        demand(a[1] & b[1] == 0, "a contribution to block", a[0], "counts twice")
        self.cost[rank]["blocks_combined"] += 1
        first, second = (a, b) if a[3] < b[3] else (b, a)
        return a[0], a[1] | b[1], f"({first[2]}+{second[2]})", first[3]
    def sums(self, rank, all_of):
        return [functools.reduce(lambda a, b: self.add(rank, a, b), column) for column in zip(*all_of)]
    def start_round(self, rank, steps, sent, receives):
        into = [cell for step in steps if step[0].startswith("receive") for cell in self.cells(rank, step[3])]
        busy, is_local = set(into), True
        demand(len(busy) == len(into), "two steps of a round receive into the same memory")
        span = lambda s: (s[3], s[1] - s[4], s[3] + s[4] + s[2])  # of a run in scratch: its slot, first block, end
        used = {span(s) for step in steps for s in step[2:4] if s and s[0] == "scratch" and s[2]}
        taken = {span(s[3]) for s in steps if s[0].startswith("receive") and s[3][0] == "scratch" and s[3][2]}
        demand(all(a[:2] == b[:2] or a[2] <= b[0] or b[2] <= a[0] for a in taken for b in used), "runs share memory")
        for kind, peer, source, target, part in steps:
            demand(is_local or kind not in ("copy", "combine_ranks"), "local steps come first")
            is_local = kind in ("copy", "combine_ranks")
            demand(not is_local or not busy & set(self.cells(rank, target)), "writes what the round receives into")
            if kind == "copy" and (source[0] != target[0] or self.cells(rank, source) != self.cells(rank, target)):
                self.write(rank, target, self.read(rank, source, busy))
            elif kind == "combine_ranks":
                demand(source[2] == 1 and source[0] != "scratch", "expected one own block")
                slot = [("scratch", source[1], 1, source[3] + r - (r > rank), 0) for r in range(self.world)]
                all_of = [self.read(rank, source if r == rank else slot[r], busy) for r in range(self.world)]
                self.write(rank, target, self.sums(rank, all_of))
            elif kind == "send":
                demand(peer != rank and (rank, peer, part) not in sent, "two messages have the same part")
                sent[rank, peer, part] = source[1], self.read(rank, source, busy)
            elif kind != "copy":
                demand(kind.startswith("receive"), "mapped steps among messages")
                self.read(rank, source or target, busy.difference(self.cells(rank, target))) if source else None
                receives.append((rank, kind, peer, source, target, part))
    def run_messages(self):
        heard = [1 << rank for rank in range(self.world)]
        for round in range(max(map(len, self.ranks))):
            sent, receives, before = {}, [], list(heard)
            for rank in range(self.world):
                self.start_round(rank, sum(self.ranks[rank][round:round + 1], []), sent, receives)
            for rank, kind, peer, source, target, part in receives:
                first, values = sent.pop((peer, rank, part), (None, None))
                expected = (rank, peer, 1) if self.what == "all_to_all" and values else (first, first, target[2])
                demand(None not in (values, first) and (first, target[1], len(values)) == expected, "no message")
                if kind == "receive_combine":
                    values = self.sums(rank, [self.read(rank, source), values])
                self.write(rank, target, values)
                heard[rank] |= before[peer]
            demand(not sent, "nobody receives", list(sent)[:1])
        demand(self.what != "barrier" or set(heard) == {(1 << self.world) - 1}, "a rank leaves too early")
    def touch(self, rank, cells, writes):  # a race unless this rank has awaited a post of the other after its access
        for cell in cells:
            for (other, wrote), posts in self.touched[cell].items():
                demand(self.known[rank][other] > posts or not (writes or wrote) or other == rank, "a race at", cell)
            self.touched[cell][rank, writes] = self.known[rank][rank]
    def run_mapped_step(self, rank, kind, peer, source, target, part):
        if kind == "await":  # of the root, or of all
            by_root = rank != self.root and self.what in ("broadcast", "gather", "scatter")
            demand(peer == (self.root if by_root else -1), "awaits", peer)
            others = [r for r in range(self.world) if r != rank and peer in (-1, r)]
            ready = all(self.known[r][r] > part for r in others)
            self.known[rank] = [max(n, part + 1) if ready and r in others else n for r, n in enumerate(self.known[rank])]
            return ready
        demand(kind in ("post", "copy", "copy_from_peer", "combine_peers"), "messages in a mapped schedule")
        readers = range(self.world) if kind == "combine_peers" else [peer if kind == "copy_from_peer" else rank]
        for r in readers if source else ():
            self.touch(rank, self.cells(r, source), False)
        values = self.sums(rank, [self.read(r, source) for r in readers] if source else [])
        for r in range(self.world) if kind == "combine_peers" and peer < 0 else [peer if len(readers) > 1 else rank]:
            into = ("posted", *source[1:3], 0, 0) if kind == "post" and source else target
            if into and (kind != "copy" or self.cells(r, source) != self.cells(r, into)):
                self.touch(rank, self.cells(r, into), True)
                self.write(r, into, values)
        self.known[rank][rank] += kind == "post"  # its posts so far
        return True
    def run_mapped(self):
        left, self.touched = [sum(all, []) for all in self.ranks], collections.defaultdict(dict)
        self.known, moved = [[0] * self.world for _ in left], True
        while moved:
            moved = False
            for rank, steps in enumerate(left):
                while steps and self.run_mapped_step(rank, *steps[0]):
                    moved = bool(steps.pop(0))
        demand(not any(left), "a rank waits for ever")
        for cell in [cell for cell in self.touched if cell[1] != "posted"]:  # its owner's next operation writes it
            self.touch(cell[0], [cell], True)
        demand(self.what != "barrier" or self.world == 1 or all(map(all, self.known)), "a rank leaves too early")
    def ends(self, depth):  # each step waits for room or a message in its channel, or (depth 0) for the other side
        left = [[(s[1], s[0] == "send") for s in sum(rounds, []) if "n" in KINDS[s[0]]] for rounds in self.ranks]
        at, held, ready = [0] * self.world, collections.defaultdict(int), set(range(self.world))
        while ready:
            rank = ready.pop()
            for peer, sends in left[rank][at[rank]:]:
                channel = (rank, peer) if sends else (peer, rank)
                is_other = left[peer][at[peer]:at[peer] + 1] == [(rank, not sends)]
                if (depth and held[channel] == (depth if sends else 0)) or (not depth and not is_other):
                    break
                held[channel] += 1 if sends else -1
                at[peer] += depth == 0
                at[rank] += 1
                ready.add(peer)
        return all(n == len(steps) for n, steps in zip(at, left))
    def check(self):
        kinds = {step[0] for rounds in self.ranks for steps in rounds for step in steps}
        self.run_mapped() if kinds & {"post", "await", "combine_peers", "copy_from_peer"} else self.run_messages()
        demand(self.ends(self.depth), "channels of depth", self.depth, "do not suffice")
        demand(self.depth == 0 or not self.ends(self.depth - 1), "a smaller depth suffices")
        slots = [number(line["scratch_slots"]) for line in self.promises]
        demand(max(slots) == max(self.used) and all(map(int.__ge__, slots, self.used)), "uses", self.used, "slots")
        demand([line["cost"] for line in self.promises] == self.cost, "another cost than", list(map(dict, self.cost)))
        whole, results = (1 << self.world) - 1, collections.defaultdict(list)
        for rank, block in (both for both in self.places if self.holds(1, *both)):
            [(of, who, text, _)] = self.read(rank, ("output", block, 1, 0, 0))
            gives = {"all_to_all": 1 << block, "all_gather": 1 << block, "gather": 1 << block,
                     "broadcast": 1 << self.root, "scatter": 1 << self.root}.get(self.what, whole)
            demand((of, who) == (rank if self.what == "all_to_all" else block, gives), "wrong contributions in", block)
            results[block, text].append(rank)
        found = [{"block": block, "sum": text, "ranks": ranks} for (block, text), ranks in results.items()]
        demand(sorted(map(str, found)) == sorted(map(str, self.results)), "other sums than promised")
def check(lines):
    try:
        return Certificate(lines).check()
    except (LookupError, TypeError, ValueError, AttributeError) as why:
        return f"{lines[:1]}: {type(why).__name__}: {why}"
def certificates(path):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    starts = [i for i, line in enumerate(lines) if i == 0 or "schedule" in line] + [len(lines)]
    return [lines[i:end] for i, end in zip(starts, starts[1:])]
if __name__ == "__main__":
    refused = [why for path in sys.argv[1:] for why in map(check, certificates(path)) if why]
    sys.exit("\n".join(refused) or len(sys.argv) < 2)
