"""The harness must notice a program that compiles though it must not, missing words, and a control that fails."""
import subprocess
import sys
import tempfile
from pathlib import Path

CHECK = Path(__file__).with_name("check.py")
REFUSAL = 'template <class T> struct S { static_assert(sizeof(T) == 1, "found a T of more than one byte"); };\n'

CASES = [
    ("refused with the words", True, "// expect: found a T of more than one byte\n" + REFUSAL + "S<int> s;\n"),
    ("refused with other words", False, "// expect: found something else\n" + REFUSAL + "S<int> s;\n"),
    ("compiles", False, "// expect: found a T\n" + REFUSAL + "S<char> s;\n"),
    ("control", True, "// expect-success\n" + REFUSAL + "S<char> s;\n"),
    ("control that fails", False, "// expect-success\n" + REFUSAL + "S<int> s;\n"),
    ("expects nothing", False, REFUSAL + "S<int> s;\n"),
    ("inside a function template", True,
     "// expect: found a T\n" + REFUSAL + "template <class T> void f(T) { S<T> s; }\nvoid g() { f(1); }\n"),
    ("cases", True, REFUSAL + "#ifdef CASE_wide\n// expect: more than one byte\nS<int> s;\n#endif\n"
     "#if defined(CASE_narrow) && !defined(CASE_wide)\n// expect-success\nS<char> s;\n#endif\n"),
    ("one bad case of two", False, REFUSAL + "#ifdef CASE_wide\n// expect: more than one byte\nS<int> s;\n#endif\n"
     "#ifdef CASE_narrow\n// expect: more\nS<char> s;\n#endif\n"),
    ("a case that begins in no known way", False, REFUSAL + "#ifdef CASE_wide\n// expect: more than one byte\nS<int> s;\n#endif\n"
     "#if defined CASE_narrow\n// expect-success\nS<char> s;\n#endif\n"),
    ("a name that is used before", True, "#ifndef CASE_wide\nusing T = char;\n#else\nusing T = int;\n#endif\n" + REFUSAL +
     "#ifdef CASE_wide\n// expect: more than one byte\nS<T> s;\n#endif\n"),
]

# Compiled together, each case must still be judged by its own messages.
NAMED = ('template <class T> struct S { static_assert(sizeof(T) == 1, "found a wide T"); };\n'
         'template <class T> struct R { static_assert(sizeof(T) != 1, "found a narrow T"); };\n'
         "template <class T> void f(T) { S<T> s; }\ntemplate <class T> void g(T) { R<T> s; }\nint main() {\n")


def two(words, statement, other_words, other_statement):
    return (f"{NAMED}#ifdef CASE_wide\n// expect: {words}\n{statement}\n#endif\n"
            f"#ifdef CASE_narrow\n// expect: {other_words}\n{other_statement}\n#endif\n}}\n")


CASES += [
    ("two together", True, two("found a wide T", "f(1);", "found a narrow T", "g('a');")),
    ("two with each other's words", False, two("found a narrow T", "f(1);", "found a wide T", "g('a');")),
    ("two with the words of one", False, two("found a wide T", "f(1);", "found a wide T", "g('a');")),
    ("one of two compiles", False, two("found a wide T", "f(1);", "found a narrow T", "g(1);")),
    ("the first of two compiles", False, two("found a wide T", "f('a');", "found a narrow T", "g('a');")),
    ("two of the same, which is told once", True, two("found a wide T", "f(1);", "found a wide T", "f(2);")),
    ("one declares what the other does", True, two("found a wide T", "int a = 1; f(a);", "found a narrow T", "char a = 1; g(a);")),
]

failed = 0
for name, good, text in CASES:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.cpp"
        path.write_text(text)
        command = [sys.executable, str(CHECK)]
        for compiler in sys.argv[1:]:
            command += ["--compiler", compiler]
        result = subprocess.run([*command, str(path)], capture_output=True, text=True)
    as_expected = (result.returncode == 0) == good and not (result.stderr and good)
    print(f"{'ok' if as_expected else 'FAILED'}: {name}")
    if not as_expected:
        failed += 1
        print(result.stdout, result.stderr)
sys.exit(1 if failed else 0)
