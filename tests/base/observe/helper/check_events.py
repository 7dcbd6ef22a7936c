#!/usr/bin/env python3
"""TensorBoard's own reader finds what was written: check_events.py PROGRAM"""
import pathlib, struct, subprocess, sys, tempfile

try:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
except ImportError:
    print("skipped: TensorBoard is not installed")
    sys.exit(77)

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], folder + "/runs"], check=True, timeout=60)
    (path,) = pathlib.Path(folder, "runs").iterdir()
    events = list(EventFileLoader(str(path)).Load())
assert events[0].file_version == "brain.Event:2", events[0]
assert len(events) == 1001, len(events)
for step, event in enumerate(events[1:]):
    assert event.step == step * 1_000_003 and event.wall_time > 1.6e9, event
    found = {one.tag: one.tensor.float_val[0] if one.HasField("tensor") else one.simple_value for one in event.summary.value}
    (exact,) = struct.unpack("f", struct.pack("f", 1 / (step + 1)))
    assert found == {"loss": exact, "accuracy of a model": -0.5}, (step, found)
print("TensorBoard reads 1000 events")
