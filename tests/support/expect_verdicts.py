"""The status and the words of a test program (main.cpp) whose cases pass, fail and skip: expect_verdicts.py PROGRAM"""
import os
import subprocess
import sys

PASSED, FAILED, BROKEN, SKIPPED = 0, 201, 200, 77
QUICK = "--run_test=!@slow"
CASES = [
    (["verdicts/good"], PASSED, []),
    (["verdicts/skips"], SKIPPED, ["skipped: verdicts/skips: no moon\n"]),
    (["verdicts/skips,skips_too"], SKIPPED, ["skipped: verdicts/skips: no moon\n", "skipped: verdicts/skips_too: no sun\n"]),
    (["verdicts/skips,good"], PASSED, ["skipped: verdicts/skips: no moon\n"]),
    (["verdicts/skips_a_part"], PASSED, ["skipped in part: verdicts/skips_a_part: no star\n"]),
    (["verdicts/skips,bad"], FAILED, ["skipped: verdicts/skips: no moon\n", "check false has failed"]),
    (["verdicts/skips,throws"], FAILED, ["skipped: verdicts/skips: no moon\n"]),
    (["verdicts/skips,empty"], PASSED, ["verdicts/empty has checked nothing"]),
    (["verdicts/absent"], BROKEN, ["no test cases matching filter"]),
    (["verdicts/absent", QUICK], BROKEN, ["no test cases matching filter"]),
    (["verdicts/is_slow", QUICK], SKIPPED, ["skipped: all 1 test cases are slow"]),
    (["verdicts/good", QUICK], PASSED, []),
    (["verdicts/findings/of_all_ranks"], PASSED, []),
    (["verdicts/findings/long_one"], FAILED, ["found ...."]),
    (["verdicts/findings/none_checked"], FAILED, ["0 ranks have checked something, expected 1"]),
    (["verdicts/findings/one_rank_is_silent"], FAILED, ["2 ranks have checked something, expected 3"]),
    (["verdicts/findings/of_a_process_that_dies"], FAILED, ["first; "]),
]

wrong = 0
for filters, status, words in CASES:
    options = [one if one.startswith("--") else "--run_test=" + one for one in filters]
    done = subprocess.run([sys.argv[1], *options], env=dict(os.environ, BOOST_TEST_COLOR_OUTPUT="0"), capture_output=True, text=True,
                          errors="replace", timeout=60)
    said = done.stdout + done.stderr
    if done.returncode != status or not all(word in said for word in words):
        wrong += 1
        print(f"{filters}: status {done.returncode}, expected {status} and {words}; it said\n{said[:2000]}")
sys.exit(1 if wrong else 0)
