"""certificates.py PROGRAM FOLDER WORLDS: the certificates that PROGRAM (unisono-certificate) writes hold, according to
FOLDER/check_certificate.py, which also refuses 100 certificates with one change each. WORLDS: numbers of ranks with commas between,
all (1 to 64), or daily: 1 to 17, 32, 64 and a fifth of the others, which the date chooses."""
import copy
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile

program, folder, worlds = sys.argv[1:4]
sys.path.insert(0, folder)
from check_certificate import certificates, check

script = os.path.join(folder, "check_certificate.py")
with open(script, encoding="utf-8") as file:
    assert len(file.readlines()) <= 210


def written(world):
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "certificates.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            subprocess.run([program, str(world)], stdout=file, check=True)
        assert world != 2 or subprocess.run([sys.executable, script, path], check=False).returncode == 0
        return certificates(path)


def places(value, path=()):
    """The numbers and words of a certificate, and its lists' entries."""
    if isinstance(value, (dict, list)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, path + (key,))
            if isinstance(value, list) and isinstance(one, (dict, list)):
                yield path + (key,), "leave out"
    elif path[-1] != "schedule":  # the name is no promise
        yield path, "change"


def changed(lines, draw):
    """The certificate with one change, and what it is."""
    lines = copy.deepcopy(lines)
    path, how = draw.choice([one for one in places(lines) if one[0] != (0,)])
    at = lines
    for key in path[:-1]:
        at = at[key]
    before = at[path[-1]]
    if how == "leave out":
        del at[path[-1]]
    elif isinstance(before, str):
        at[path[-1]] = draw.choice([word for word in ("send", "receive", "copy", "input", "output", "scratch", "0", "(0+1)",
                                                      "all_reduce", "gather") if word != before])
    elif before is None:
        at[path[-1]] = ["input", 0, 1, 0, 0]
    else:
        at[path[-1]] = draw.choice([before - 1, before + 1])
    return lines, f"{path} {how}: {before} -> {at[path[-1]] if how == 'change' else ''}"


def chosen(words):
    if words == "daily":
        day = datetime.date.today().toordinal() % 5
        return [world for world in range(1, 65) if world <= 17 or world in (32, 64) or world % 5 == day]
    return range(1, 65) if words == "all" else [int(word) for word in words.split(",")]


tried, count, some = chosen(worlds), 0, []
for world in tried:
    for certificate in written(world):
        why = check(certificate)
        assert why is None, why
        count += 1
        if 2 <= world <= 7:
            some.append(certificate)
draw, refused = random.Random(1), 0
while refused < 100:
    lines, how = changed(draw.choice(some), draw)
    assert check(lines) is not None, f"{lines[0]}: accepted with the change {how}\n" + "\n".join(map(json.dumps, lines))
    refused += 1
print(f"{count} certificates of {len(tried)} worlds hold; {refused} with one change are refused")
