"""Kills ranks of running trainings; every other rank must get an error that names the dead one.

    python tests/kills.py --count 50
"""

import argparse
import random
import time

from launch import Ranks


def kill_one(ranks, transport, generator):
    """Seconds from the kill to the last survivor's error."""
    victim = generator.randrange(ranks)
    with Ranks(ranks, "train_until_killed", {"transport": transport}) as world:
        world.await_line("training")
        time.sleep(generator.random() * 0.2)
        killed = time.time()
        world.processes[victim].kill()
        latest = 0.0
        for rank, answer in enumerate(world.answers(deadline_s=60, but=(victim,))):
            if rank == victim:
                continue
            status, said = answer
            assert status == 3 and said["raised"] == "LightGBMError", f"rank {rank}: {answer}"
            assert f"rank {victim}" in said["text"], f"rank {victim} was killed; rank {rank} says: {said['text']}"
            latest = max(latest, said["at"] - killed)
    return latest, said["text"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    generator = random.Random(chosen.seed)
    times = []
    for turn in range(chosen.count):
        seconds, text = kill_one(chosen.ranks, ("shared_memory", "tcp")[turn % 2], generator)
        times.append(seconds)
        if turn < 2:
            print(text)
    times.sort()
    print(
        f"{len(times)} kills of one of {chosen.ranks} ranks, none hung; from the kill to the last rank's error: "
        f"median {times[len(times) // 2] * 1e3:.0f} ms, longest {times[-1] * 1e3:.0f} ms"
    )
