"""LightGBM over Unisono: the models of its own sockets, the same trees on any number of ranks, and errors that name the rank at fault."""

import os
import random
import unittest

from kills import kill_one
from launch import Ranks, free_ports


def ask(size, task, arguments=None, of_rank=lambda rank: {}):
    with Ranks(size, task, arguments, of_rank) as ranks:
        answers = ranks.answers()
    for rank, (status, said) in enumerate(answers):
        assert status == 0, f"{task} on rank {rank} of {size}: {said}"
    return [said for _, said in answers]


class Lightgbm(unittest.TestCase):
    def test_same_trees_on_any_number_of_ranks(self):
        expected = ask(1, "same_trees", {"rounded": True})[0]
        for size, transport in ((2, "shared_memory"), (4, "tcp"), (8, "shared_memory")):
            for rank, answer in enumerate(ask(size, "same_trees", {"rounded": True, "transport": transport})):
                self.assertEqual(answer, expected, f"rank {rank} of {size} over {transport}")
        # The same sums in double round, which the case above would detect.
        self.assertNotEqual(ask(2, "same_trees", {"rounded": False})[0]["regression"], ask(1, "same_trees", {"rounded": False})[0]["regression"])

    def test_models_are_those_of_lightgbms_sockets(self):
        ports = free_ports(2)
        sockets = ask(2, "sockets", {"ports": ports}, lambda rank: {"rank": rank})
        for transport in ("shared_memory", "tcp"):
            self.assertEqual(ask(2, "unisono", {"transport": transport}), sockets, transport)

    def test_killed_ranks_are_named(self):
        generator = random.Random(os.urandom(4))
        for transport in ("shared_memory", "tcp"):
            kill_one(3, transport, generator)

    def test_gradients_that_are_not_finite_are_refused_everywhere(self):
        for answer in ask(3, "refuses"):
            self.assertEqual(answer, {"error": "a gradient or hessian of some rank is not finite", "trees": 1, "sum": [3.0, 3.0]})

    def test_a_ranks_exception_is_everybodys(self):
        with Ranks(3, "fails") as ranks:
            answers = ranks.answers()
        self.assertEqual(answers[1][1]["text"], "the disk is full")
        for rank in (0, 2):
            status, said = answers[rank]
            self.assertEqual((status, said["raised"]), (3, "LightGBMError"))
            self.assertIn("rank 1 gave up: RuntimeError: the disk is full", said["text"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
