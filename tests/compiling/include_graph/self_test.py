"""The script that guards the include graph must see each kind of violation, and none where there is none."""
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import check
from check import COMMENT_COLUMNS, MAXIMUM_LINES, Checker


def violations(files, reached=False):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / "include" / "unisono" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        checker = Checker(folder)
        checker.run()
        if reached:
            checker.check_reached()
        return checker.violations


def include(name):
    return f'#pragma once\n#include "unisono/{name}"\n'


class SelfTest(unittest.TestCase):
    def assert_only(self, found, start, *words):
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"include/unisono/{start}: "), found[0])
        for word in words:
            self.assertIn(word, found[0])

    def test_the_system_clock(self):
        self.assert_only(violations({"core/error.hpp": "auto x = std::chrono::system_clock::now();\n"}), "core/error.hpp:1", "steady")
        self.assertEqual(violations({"extensions/launch/rendezvous/waiting_notice.hpp": "auto x = std::chrono::system_clock::now();\n"}), [])

    def test_names_that_std_has_as_well(self):
        self.assert_only(violations({"core/error.hpp": "fail({quoted(key)});\n"}), "core/error.hpp:1", "detail::quoted()")
        self.assertEqual(violations({"core/error.hpp": "fail({detail::quoted(key)});\nstd::string quoted(std::string_view text) {\n"}), [])

    def test_what_a_compiler_may_fold(self):
        for line in ("if (std::isnan(x)) return;", "bad = !__builtin_isfinite(x);", "if (score != score) fail();", "return a && x == x;"):
            self.assert_only(violations({"core/a.hpp": line + "\n"}), "core/a.hpp:1", "core/math.hpp")
        self.assertEqual(violations({"core/a.hpp": "if (from.rank != rank || peer != peer_ || a == ab || at % b == b - 1 || m.n != n) x = y == y.z;\n// x != x\n"}), [])

    def test_algorithms_that_compiled_mode_lacks(self):
        use = "auto* at = std::lower_bound(begin, end, x, less);\n"
        self.assert_only(violations({"core/a.hpp": use}), "core/a.hpp:1", "std::lower_bound without <algorithm>")
        self.assert_only(violations({"core/a.hpp": "#if !UNISONO_DEFINES\n" + use + "#endif\n"}), "core/a.hpp:2", "std::lower_bound")
        self.assert_only(violations({"core/b.hpp": "#if UNISONO_DEFINES\n" + use + "#endif\n"}), "core/b.hpp:2", "std::lower_bound")
        self.assertEqual(violations({"core/a.hpp": "#include <algorithm>\n" + use}), [])

    def test_a_clean_tree(self):
        self.assertEqual(violations({
            "core/error.hpp": "#include <string>\n#include <sys/mman.h>\n",
            "transport/transport.hpp": include("core/error.hpp"),
            "group/group.hpp": include("transport/transport.hpp"),
            "extensions/mpi/mpi.hpp": "#include <mpi.h>\n" + include("group/group.hpp"),
            "mpi.hpp": include("extensions/mpi/mpi.hpp"),
            "testing/laws.hpp": include("group/group.hpp"),
            "unisono.hpp": include("group/group.hpp"),
        }), [])

    def test_an_upward_arrow(self):
        self.assert_only(violations({"core/a.hpp": include("group/group.hpp"), "group/group.hpp": ""}), "core/a.hpp:2",
                         "core must not include unisono/group/group.hpp", "allowed: nothing of ours")

    def test_angle_brackets_and_spaces(self):
        self.assert_only(violations({"data/a.hpp": "#  include <unisono/group/group.hpp>\n", "group/group.hpp": ""}),
                         "data/a.hpp:1", "allowed: core")

    def test_a_concrete_transport_where_only_the_concept_may_be(self):
        self.assert_only(violations({"group/g.hpp": include("transport/in_process.hpp"), "transport/in_process.hpp": ""}),
                         "group/g.hpp:2", "transport:concept")

    def test_testing_is_for_tests_only(self):
        self.assert_only(violations({"trainer/t.hpp": include("testing/laws.hpp"), "testing/laws.hpp": ""}),
                         "trainer/t.hpp:2", "must not include unisono/testing/laws.hpp")

    def test_the_base_includes_no_extension(self):
        self.assert_only(violations({"trainer/t.hpp": include("extensions/checkpoint/c.hpp"), "extensions/checkpoint/c.hpp": ""}),
                         "trainer/t.hpp:2", "must not include unisono/extensions/checkpoint/c.hpp",
                         "extensions/ is included by public headers, testing, extensions only")
        self.assert_only(violations({"trainer/t.hpp": include("nccl.hpp"), "nccl.hpp": ""}),
                         "trainer/t.hpp:2", "must not include unisono/nccl.hpp, the header of an extension")
        self.assertEqual(violations({"extensions/checkpoint/c.hpp": include("trainer/t.hpp"), "trainer/t.hpp": "",
                                     "checkpoint.hpp": include("extensions/checkpoint/c.hpp")}), [])

    def test_the_umbrella_reaches_no_extension(self):
        found = violations({"unisono.hpp": include("updates.hpp"), "updates.hpp": include("extensions/updates/u.hpp"),
                            "extensions/updates/u.hpp": ""})
        self.assert_only(found, "updates.hpp:2", "the umbrella reaches unisono/extensions/updates/u.hpp")

    def test_an_extension_on_another(self):
        self.assert_only(violations({"extensions/tcp/a.hpp": include("extensions/elastic/b.hpp"), "extensions/elastic/b.hpp": ""}),
                         "extensions/tcp/a.hpp:2", "extension tcp must not include unisono/extensions/elastic/b.hpp",
                         "it is built on launch, network")
        self.assertEqual(violations({"extensions/elastic/b.hpp": include("extensions/tcp/a.hpp"), "extensions/tcp/a.hpp": ""}), [])

    def test_an_extension_on_a_public_header(self):
        for extension, public, brought in (("tcp", "elastic", "elastic"), ("checkpoint", "nccl", "nccl")):
            found = violations({f"extensions/{extension}/a.hpp": include(f"{public}.hpp"),
                                f"{public}.hpp": include(f"extensions/{brought}/b.hpp"), f"extensions/{brought}/b.hpp": ""})
            self.assert_only(found, f"extensions/{extension}/a.hpp:2", f"must not include unisono/{public}.hpp", "join.hpp")
        self.assertEqual(violations({"extensions/tcp/a.hpp": include("join.hpp") + include("unisono.hpp"),
                                     "join.hpp": include("extensions/launch/rendezvous/b.hpp"), "unisono.hpp": "",
                                     "extensions/launch/rendezvous/b.hpp": ""}), [])

    def test_a_header_that_no_public_one_includes(self):
        files = {"tcp.hpp": include("extensions/tcp/a.hpp"), "extensions/tcp/a.hpp": include("extensions/tcp/b.hpp"),
                 "extensions/tcp/b.hpp": "", "core/c.hpp": ""}
        self.assertEqual(violations(files, reached=True), [])
        self.assert_only(violations(files | {"extensions/tcp/a.hpp": ""}, reached=True), "extensions/tcp/b.hpp:1", "no public header")

    def test_a_header_of_no_extension(self):
        self.assert_only(violations({"extensions/x.hpp": ""}), "extensions/x.hpp:1", "belongs to no extension")

    def test_the_exceptions_may_only_shrink(self):
        files = {"trainer/t.hpp": include("extensions/x/x.hpp"), "extensions/x/x.hpp": ""}
        known = {("trainer/t.hpp", "extensions/x/x.hpp"): "a concept that an extension defines"}
        with unittest.mock.patch.dict(check.EXCEPTIONS, known):
            with unittest.mock.patch.object(check, "MOST_EXCEPTIONS", 1):
                self.assertEqual(violations(files), [])
                self.assert_only(violations({"trainer/t.hpp": ""}), "trainer/t.hpp:1", "take it off the exceptions")
            with unittest.mock.patch.object(check, "MOST_EXCEPTIONS", 0):
                self.assert_only(violations(files), "unisono.hpp:1", "1 exceptions of the base; at most 0")

    def test_an_unknown_room(self):
        self.assert_only(violations({"attic/a.hpp": ""}), "attic/a.hpp:1", "attic")

    def test_a_missing_header(self):
        self.assert_only(violations({"core/a.hpp": include("core/gone.hpp")}), "core/a.hpp:2", "does not exist")

    def test_a_comment_that_names_no_header(self):
        files = {"extensions/tcp/a.hpp": "/// See b.hpp, tcp/b.hpp, network/c.hpp, core/d.hpp and unisono/core/d.hpp.\n",
                 "extensions/tcp/b.hpp": "", "extensions/network/c.hpp": "", "core/d.hpp": ""}
        self.assertEqual(violations(files), [])
        for name in ("c.hpp", "tcp/d.hpp", "core/gone.hpp"):
            self.assert_only(violations(files | {"extensions/tcp/b.hpp": f"int x; // see {name}.\n"}), "extensions/tcp/b.hpp:1", f"names {name},")

    def test_a_relative_include(self):
        self.assert_only(violations({"core/a.hpp": '#include "b.hpp"\n', "core/b.hpp": ""}), "core/a.hpp:1", "unisono/")

    def test_a_cycle(self):
        self.assert_only(violations({"core/a.hpp": include("core/b.hpp"), "core/b.hpp": include("core/a.hpp")}),
                         "core/a.hpp:1", "core/a.hpp -> core/b.hpp -> core/a.hpp")

    def test_costly_headers(self):
        for name in ("random", "filesystem", "immintrin.h", "emmintrin.h"):
            self.assert_only(violations({"core/a.hpp": f"#include <{name}>\n"}), "core/a.hpp:1", name)

    def test_third_parties(self):
        self.assert_only(violations({"extensions/tcp/tcp.hpp": "#include <mpi.h>\n"}), "extensions/tcp/tcp.hpp:1", "third party")
        self.assert_only(violations({"extensions/mpi/mpi.hpp": "#include <nccl.h>\n"}), "extensions/mpi/mpi.hpp:1", "third party")
        found = violations({"unisono.hpp": include("mpi.hpp"), "mpi.hpp": include("extensions/mpi/mpi.hpp"), "extensions/mpi/mpi.hpp": ""})
        self.assertTrue(any("which needs a third party" in text for text in found), found)

    def test_a_long_header(self):
        self.assert_only(violations({"core/a.hpp": "int a;\n" * (MAXIMUM_LINES + 1)}), f"core/a.hpp:{MAXIMUM_LINES + 1}",
                         "which two ideas")

    def test_comments_do_not_make_a_header_long(self):
        self.assertEqual(violations({"core/a.hpp": "// why\n" * (MAXIMUM_LINES + 1)}), [])

    def test_a_wide_comment(self):
        wide = "// " + "x" * (COMMENT_COLUMNS - 2) + "\n"
        self.assert_only(violations({"update/a.hpp": wide}), "update/a.hpp:1", "columns")
        self.assertEqual(violations({"update/a.hpp": wide.replace("xx", "x", 1)}), [])

    def test_wide_comments_outside_of_the_headers(self):
        wide = "x" * COMMENT_COLUMNS + "\n"
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {"tests/a/a.cpp": "    // " + wide, "bench/CMakeLists.txt": "# " + wide,
                               "tools/a.sh": "# " + wide, "tests/b/b.cpp": "// expect: " + wide,
                               "examples/a/a.py": "'" + wide}.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            checker = Checker(folder)
            checker.check_comments()
        found = sorted(text.split(" ")[0] for text in checker.violations)
        self.assertEqual(found, ["bench/CMakeLists.txt:1:", "tests/a/a.cpp:1:", "tools/a.sh:1:"])


if __name__ == "__main__":
    unittest.main()
