#!/usr/bin/env python3
"""Policies of your own are as short as docs/own_policies.md says: whole headers, with comments and blank lines."""
import pathlib, sys

MOST = {"own_policies/length_grouped.hpp": 40, "own_policies/two_way_ring.hpp": 40, "own_policies/whole_buckets.hpp": 40,
        "own_policies/decoupled_averaging.hpp": 80, "own_update/elastic_averaging.hpp": 80,
        "own_compression/sign_compression.hpp": 80}
examples = pathlib.Path(__file__).resolve().parent.parent
lines = {name: len((examples / name).read_text().splitlines()) for name in MOST}
for name, most in MOST.items():
    print(f"{name}: {lines[name]} lines, at most {most}")
sys.exit(any(lines[name] > most for name, most in MOST.items()))
