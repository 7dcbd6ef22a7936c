"""What is written here is read by the Python library `safetensors`, and what that writes by us; both refuse the same files.
The checksums of a checkpoint's files are what `xxhash` makes of them.

    python3 check.py TENSORS      (the helper program; status 77 where the libraries are not there)
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy
    import xxhash
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

TENSORS = sys.argv[1]


def show(path):
    done = subprocess.run([TENSORS, "show", path], capture_output=True, text=True, timeout=60)
    return done.stdout, done.returncode


def check_checkpoint(folder):
    subprocess.run([TENSORS, "write", folder], check=True, timeout=60)
    checkpoint = folder / "checkpoint-000001-update-6"
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    shapes = {one["name"]: tuple(one["shape"]) for one in manifest["parameters"]}
    assert shapes["hidden.weight"] == (5, 6) and shapes["nothing"] == (0, 5), shapes
    assert sorted(one.name for one in checkpoint.iterdir()) == sorted([one["name"] for one in manifest["files"]] + ["manifest.json"])
    seen, parts = {}, {}
    for file in manifest["files"]:
        path = checkpoint / file["name"]
        assert len(path.read_bytes()) == file["bytes"]
        assert xxhash.xxh64(path.read_bytes()).hexdigest() == file["xxh64"], path
        tensors = load_file(path)
        assert sorted(tensors) == sorted(one["name"] for one in file["tensors"])
        with safe_open(path, framework="numpy") as lazily:
            assert lazily.metadata() == {"format": "pt"} and sorted(lazily.keys()) == sorted(tensors)
        for one in file["tensors"]:
            assert tensors[one["name"]].size == one["count"]
            if one["of"] == "optimizer":
                parts.setdefault((one["index"], one["array"]), {})[one["first"]] = tensors[one["name"]]
            else:
                seen[one["name"]] = tensors[one["name"]]
        text, status = show(path)
        assert status == 0, text
        for line in text.splitlines():
            name, kind, rest = line.split(" ", 2)
            numbers = [float.fromhex(x) for x in rest.split("]", 1)[1].split()]
            assert kind == {"float32": "F32", "float64": "F64"}[tensors[name].dtype.name]
            assert numbers == [float(x) for x in tensors[name].ravel()], line
    for name, shape in shapes.items():
        assert seen[name].shape == shape and seen[name].dtype == numpy.float32, name
    assert seen["running_mean"].dtype == numpy.float64
    assert manifest["optimizer"]["arrays"] == ["exp_avg", "exp_avg_sq"]
    assert len({file["name"] for file in manifest["files"] if file["name"].startswith("optimizer")}) >= 2
    # Slices of several ranks make whole tensors.
    for index, parameter in enumerate(manifest["parameters"]):
        for array in range(2):
            pieces = parts.get((index, array), {})
            whole = numpy.concatenate([pieces[first] for first in sorted(pieces)]) if pieces else numpy.zeros(0)
            assert whole.size == numpy.prod(parameter["shape"]), (parameter, array)
            assert whole.size == 0 or numpy.any(whole != 0), parameter


def check_theirs(folder):
    random = numpy.random.default_rng(1)
    theirs = {"a": random.normal(size=(3, 4)).astype(numpy.float32), "b.ä\"\\": random.normal(size=7),
              "none": numpy.zeros((2, 0, 3), numpy.float32), "scalar": numpy.array(1.5, numpy.float32),
              "i": numpy.arange(5, dtype=numpy.int64), "u": numpy.arange(3, dtype=numpy.uint8),
              "h": numpy.arange(3, dtype=numpy.float16), "t": numpy.array([True, False])}
    save_file(theirs, folder / "theirs", metadata={"some": "text"})
    text, status = show(folder / "theirs")
    assert status == 0, text
    found = {}
    for line in text.splitlines():
        name, kind, rest = line.split(" ", 2)
        shape, numbers = rest[1:].split("]")
        found[name] = (kind, tuple(int(n) for n in shape.split()), [float.fromhex(x) for x in numbers.split()])
    assert sorted(found) == sorted(theirs), found
    for name, kind in zip(theirs, ["F32", "F64", "F32", "F32", "I64", "U8", "F16", "BOOL"]):
        assert found[name][:2] == (kind, theirs[name].shape), found[name]
        if kind in ("F32", "F64"):
            assert found[name][2] == [float(x) for x in theirs[name].ravel()], name


def check_refused(folder):
    def write(header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        (folder / "bad").write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)

    def tensor(begin, end, shape, kind="F32"):
        return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}

    cases = [({"a": tensor(0, 8, [2])}, bytes(7)), ({"a": tensor(0, 8, [2])}, bytes(9)), ({"a": tensor(0, 8, [3])}, bytes(8)),
             ({"a": tensor(4, 12, [2])}, bytes(12)), ({"a": tensor(0, 8, [2]), "b": tensor(4, 12, [2])}, bytes(12)),
             ({"a": tensor(0, 8, [2]), "b": tensor(12, 20, [2])}, bytes(20)), ({"a": tensor(0, 8, [2], "F31")}, bytes(8)),
             ({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)), (b"[]", b""), (b"", b""), (b"{", b""), (b"{}x", b""),
             ({"a": tensor(8, 0, [2])}, bytes(8)), ({"a": tensor(0, 8, [-2])}, bytes(8)),
             ({"a": tensor(0, 0, [1 << 33, 1 << 33])}, b""), ({"__metadata__": {"a": 1}}, b""),
             (b'{"\xff":1}', b""), (b"{}", b"", 1 << 40), (b"{}", b"", 100_000_001), (b"{}", b"", 3)]
    for case in cases:
        write(*case)
        try:
            load_file(folder / "bad")
            raise AssertionError(f"safetensors accepts {case}")
        except (SafetensorError, KeyError):  # the latter: of a type that numpy does not have
            pass
        text, status = show(folder / "bad")
        assert status == 1 and text.startswith("refused: "), (case, text)
    print(len(cases), "bad files refused by both")


with tempfile.TemporaryDirectory() as name:
    check_checkpoint(Path(name))
    check_theirs(Path(name))
    check_refused(Path(name))
print("safetensors and we agree")
