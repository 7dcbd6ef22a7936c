"""No header may stand in a chain, or behind a base, where it sees what it does not include."""
import tempfile
import unittest
from pathlib import Path

from chains import Closures, base_of, chains


class SelfTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def closures(self, files):
        for name, lines in files.items():
            Path(self.folder.name, name).write_text("#pragma once\n" + "".join(line + "\n" for line in lines))
        return Closures(Path(self.folder.name))

    def chains_of(self, files):
        return sorted(chains(list(files), self.closures(files)))

    def test_each_header_is_in_one_chain(self):
        found = self.chains_of({"a": [], "b": ['#include "a"'], "c": ['#include "a"'], "d": ['#include "b"', '#include "c"']})
        self.assertEqual(sorted(header for chain in found for header in chain), ["a", "b", "c", "d"])
        self.assertEqual(len(found), 2)

    def test_whoever_includes_all_comes_behind(self):
        self.assertEqual(self.chains_of({"a": ["#include <vector>"], "b": ['#include "c"'], "c": ['  #  include "a"']}),
                         [["a", "c", "b"]])

    def test_strangers_are_not_in_one_chain(self):
        self.assertEqual(self.chains_of({"a": ["#include <vector>"], "b": ["#include <vector>"]}), [["a"], ["b"]])

    def test_an_include_under_a_condition_is_no_include_and_brings_something(self):
        self.assertEqual(self.chains_of({"a": [], "b": ["#if defined(X)", '#include "a"', "#endif"]}), [["a"], ["b"]])
        self.assertEqual(self.chains_of({"a": ["#ifdef X", "#include <vector>", "#else", "#endif"], "b": ['#include "a"']}),
                         [["a"], ["b"]])

    def test_conditions_on_the_mode_have_the_values_of_a_header_only_program(self):
        self.assertEqual(self.chains_of({"a": [], "b": ["#if UNISONO_DEFINES_PART(UNISONO_PART_NETWORK) // a remark", '#include "a"', "#endif"]}),
                         [["a", "b"]])
        self.assertEqual(self.chains_of({"a": [], "b": ["#if UNISONO_DEFINES", '#include "a"', "#else", "#include <vector>", "#endif"],
                                         "c": ['#include "b"', "#if defined(X)", "#if UNISONO_DEFINES", "#include <list>", "#endif", "#endif"],
                                         "d": ['#include "c"']}), [["a", "b", "c"], ["d"]])
        self.assertEqual(self.chains_of({"a": [], "b": ["#if !UNISONO_DEFINES && defined(X)", "#include <vector>", "#else", '#include "a"', "#endif"]}),
                         [["a", "b"]])

    def test_conditions_on_the_platform_have_the_values_of_linux_with_libstdcxx(self):
        self.assertEqual(self.chains_of({"a": ["#if defined(__linux__)", "#include <a.h>", "#else", "#include <b.h>", "#endif"],
                                         "b": ["#if !defined(__SSE2__) && !defined(__aarch64__)", "#include <c.h>", "#endif", '#include "a"'],
                                         "c": ['#include "b"']}), [["a", "b", "c"]])

    def test_a_sentence_that_ends_a_compilation_brings_nothing(self):
        self.assertEqual(self.chains_of({"a": ["#ifdef x", '#include "there must be no x"', "#endif"], "b": ['#include "a"']}), [["a", "b"]])

    def test_the_librarys_headers_are_in_few_chains(self):
        """A condition in a header that all others include, and that chains.py does not know, ends all chains."""
        folder = Path(__file__).resolve().parents[3] / "include"
        headers = [str(path.relative_to(folder)) for path in folder.rglob("*.hpp")]
        self.assertLess(2 * len(list(chains(headers, Closures(folder)))), len(headers))

    def test_what_is_included_behind_code_is_not_seen_by_it(self):
        self.assertEqual(self.chains_of({"a": [], "b": ["struct B;", '#include "a"'], "c": ['#include "b"']}), [["a"], ["b", "c"]])

    def test_a_base_is_included_by_the_first(self):
        closures = self.closures({"e": ["#include <string>"], "a": ['#include "e"', "#include <span>"], "b": ["#include <span>"]})
        bases = [["span", "e"], ["span"]]
        self.assertEqual(base_of(["a"], bases, closures), 1)
        self.assertEqual(base_of(["b", "a"], bases, closures), 2)
        self.assertEqual(base_of(["e"], bases, closures), 0)


if __name__ == "__main__":
    unittest.main()
