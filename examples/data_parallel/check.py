"""Checks the main job's output: check.py PROGRAM REFERENCE UNISONO_RUN CASE; REFERENCE has the weights that PyTorch computed."""
import json, pathlib, subprocess, sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import launched

program, reference, unisono_run, case = sys.argv[1:5]
article_row = "[0.9472 0.9440 0.9527 0.9687 0.9570 0.9343 0.9411 0.9186]"
reducers = ["automatic", "halving-doubling", "native", "parameter-server", "ring", "tree"]


def run(*arguments, status=0):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, f"{arguments}: status {done.returncode}, expected {status}\n{done.stdout}{done.stderr}"
    return done


def trained(*arguments):
    """The one object that --json prints, with its weights as floats."""
    done = run(*arguments, "--json")
    assert done.stdout.count("\n") == 1 and done.stderr == "", done
    found = json.loads(done.stdout)
    found["weights"] = [float.fromhex(one) for one in found["weights"]]
    return found


def articles():
    for index, one in enumerate(json.load(open(reference))["article"]):
        common = ["--seed", one["seed"], "--data-size", one["size"], "--batch-size", one["batch"], "--epochs", one["epochs"]]
        weights = [float.fromhex(x) for x in one["weights_after_epoch"][-1]]
        yield index, one["world"], common, weights, 0 if index == 0 else 1e-6


def compare(found, expected, tolerance, what):
    assert len(found) == len(expected), what
    for x, y in zip(found, expected):
        assert abs(x - y) <= tolerance * max(1, abs(y)), f"{what}: found {found}, expected {expected}"


def plain():
    lines = run().stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[:3]] == [
        "2 ranks, distributed", "1 rank, interleaved, 2 accumulation steps", "the article, PyTorch"], lines
    assert all(line.endswith(article_row) for line in lines[:3]), lines
    assert lines[3:] == ["The two runs are equal to the bit.", "They reproduce the article's weights."], lines
    found = trained()
    assert found["equal"] is True and found["weights"] == [float.fromhex(x) for x in found["compared_with"]["weights"]]
    assert (found["ranks"], found["acc_steps"], found["sampler"]) == (2, 1, "distributed")
    other = found["compared_with"]
    assert (other["ranks"], other["acc_steps"], other["sampler"]) == (1, 2, "interleaved")


def against_reference():
    for index, world, common, weights, tolerance in articles():
        parallel = trained("--ranks", world, *common)["weights"]
        alone = trained("--acc-steps", world, *common)["weights"]
        compare(parallel, weights, tolerance, f"article {index}, data-parallel")
        compare(alone, weights, tolerance, f"article {index}, interleaved")
        if world == 2:
            assert parallel == alone, f"article {index}"
            assert run(*common).stdout.count("equal to the bit") == 1


def all_reducers():
    for reducer in reducers:
        for index, world, common, weights, tolerance in articles():
            found = trained("--ranks", world, "--reducer", reducer, *common)
            assert found["reducer"] == reducer
            compare(found["weights"], weights, tolerance, f"article {index}, {reducer}")
        shuffled = run("--shuffle", "--data-size", 21, "--epochs", 4, "--reducer", reducer).stdout
        assert "equal to the bit" in shuffled, shuffled


def options():
    helped = run("--help")
    for name in ("--ranks", "--acc-steps", "--epochs", "--batch-size", "--data-size", "--seed", "--sampler", "--reducer",
                 "--shuffle", "--verbose", "--json"):
        assert name in helped.stdout, name
    torch = trained("--ranks", 3, "--acc_steps", 2, "--batch_size", 2, "--data_size", 11, "--distributed")
    assert torch == trained("--ranks", 3, "--acc-steps", 2, "--batch-size", 2, "--data-size", 11)
    assert (torch["acc_steps"], torch["batch_size"], torch["data_size"]) == (2, 2, 11)
    assert trained("--distributed")["ranks"] == 2
    assert trained("--ranks", 1, "--acc-steps", 2, "--sampler", "distributed")["sampler"] == "distributed"
    assert trained("--seed", 1)["weights"] != trained("--seed", 2)["weights"]
    # Plain accumulation differs from several ranks if they do not divide the data evenly, and the
    # program says so.
    assert "not equal" in run("--sampler", "distributed", "--data-size", 15, status=1).stdout
    told = run("--verbose").stdout
    for line in ("  epoch 2, rank 1: [1 3 5 7]", "  epoch 1, rank 0: [0 2 4 6] [1 3 5 7]", "  update 2: " + article_row):
        assert line in told.splitlines(), told
    json.loads(run("--verbose", "--json").stdout)


def bad_input():
    huge = 10**18
    for arguments in (["--ranks", 0], ["--ranks", -1], ["--ranks", "nan"], ["--ranks", 2.5], ["--ranks", huge], ["--ranks"],
                      ["--acc-steps", 0], ["--acc-steps", huge], ["--epochs", 0], ["--epochs", -3], ["--epochs", huge],
                      ["--epochs", "1e18"], ["--batch-size", 0], ["--batch-size", "nan"], ["--batch-size", huge],
                      ["--data-size", 0], ["--data-size", -8], ["--data-size", huge], ["--data-size", 10**30],
                      ["--seed", -1], ["--seed", "nan"], ["--seed", 2**64], ["--seed", "1e3"], ["--seed", "0x10"], ["--epochs", 2**64 + 1], ["--batch-size", 9], ["--sampler", "nobody"],
                      ["--reducer", "nobody"], ["--distributed", "--sampler", "interleaved"], ["--nonsense"], ["stray"]):
        for more in ([], ["--json"]):
            done = run(*arguments, *more, status=2)
            assert done.stdout == "" and done.stderr.count("\n") == 1, done
            assert done.stderr.startswith("data_parallel: ") and len(done.stderr) < 250, done


def by_launchers():
    """Started by a launcher it runs that configuration only, rank 0 alone prints, and the bits are those of threads."""
    asked = ["--data-size", "21", "--epochs", "3", "--shuffle", "--json"]
    for count in (1, 2, 4):
        for reducer in ("native", "ring"):
            line = [*asked, "--reducer", reducer]
            expected = run("--ranks", count, *line).stdout
            for launcher, out, err in launched.all(unisono_run, count, [program, *line]):
                assert out == expected, f"{launcher}:\n{out}expected:\n{expected}{err}"
    for launcher, out, err in launched.all(unisono_run, 2, [program]):
        # Without /sys, MPI prints lines of hwloc.
        told = [line for line in err.splitlines() if not line.startswith("[hwloc/")]
        assert out == f"2 ranks, distributed  {article_row}\n" and not told, f"{launcher}: {out}{err}"
    out, err, status = launched.by_unisono_run(unisono_run, 2, [program, "--acc-steps", "2", "--ranks", "2"])
    assert status == 0 and out.startswith("2 ranks, distributed, 2 accumulation steps"), out + err
    for line, words in ((["--ranks", "3"], "--ranks 3, but unisono-run has started 2 ranks"),
                        (["--nonsense"], "--nonsense"),
                        (["--batch-size", "9"], "batch_size is 9")):
        out, err, status = launched.by_unisono_run(unisono_run, 2, [program, *line])
        told = [one for one in err.splitlines() if not one.startswith("unisono-run: ")]
        assert status == 2 and out == "" and len(told) == 1 and words in told[0], out + err
    contradiction = subprocess.run([program], capture_output=True, text=True, timeout=60,
                                   env={**launched.environment(), "RANK": "2", "WORLD_SIZE": "2"})
    assert contradiction.returncode == 2 and "RANK=2 and WORLD_SIZE=2 contradict" in contradiction.stderr, contradiction


{"plain": plain, "reference": against_reference, "reducers": all_reducers, "options": options, "bad_input": bad_input,
 "launched": by_launchers}[case]()
