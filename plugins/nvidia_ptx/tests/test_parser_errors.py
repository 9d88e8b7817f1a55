from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitwise_core.assembly.module import AssemblyError, Module
from bitwise_nvidia_ptx.text import lexer
from bitwise_nvidia_ptx.text.parser import parse
from covering import examples

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
ENTRY = HEAD + ".visible .entry k(.param .u64 a) { .reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %rd<4>;\n"

SAMPLE = """\
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
.global .align 1 .b8 text[3] = {104, 105, 0};
.visible .entry k(
\t.param .u64 .ptr .global .align 16 k_param_0,
\t.param .u32 k_param_1
)
.reqntid 128
{
\t.reg .pred \t%p<3>;
\t.reg .b32 \t%r<9>;
\t.reg .b64 \t%rd<5>;
\tld.param.b64 \t%rd1, [k_param_0];
$L__BB0_1:
\tmov.b32 \t%r1, global_smem;
\t{ .reg .b32 tmp; mov.b64 {tmp, %r2}, %rd1; wait: @%p1 bra wait; }
\t@!%p2 ld.global.v2.b32 { %r3, %r4 }, [ %rd1 + 0 ];
\tshfl.sync.bfly.b32 \t%r5|%p1, %r3, 16, 31, -1;
\tfma.rn.f32 \t%r6, %r5, 0f3F800000, %r4;
\t@%p1 bra \t$L__BB0_1;
\tret;
}
"""


def error_of(text: str | bytes) -> AssemblyError:
    with pytest.raises(AssemblyError) as caught:
        parse(text, "bad.ptx")
    assert caught.value.file == "bad.ptx"
    assert str(caught.value).startswith(f"bad.ptx:{caught.value.line}: ")
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        (" \n\t\n", 1, "empty"),
        (b"", 1, "empty"),
        (b"\x7fELF\n\xff\xfe", 2, "not text in UTF-8"),
        ("\0\0\0", 1, "starts with .version"),
        ("hello", 1, "starts with .version"),
        (".version 8.7\n", 2, ".target follows"),
        (".version 8.7\n.target sm_90a\n.address_size 32\n.entry k(){ret;}", 3, "64-bit"),
        (HEAD, 4, "defines no kernel"),
        (HEAD + "/* never", 4, "never closed"),
        (HEAD + '.file 1 "abc\n', 4, "string is never closed"),
        (HEAD + '.file 1 "a"\n.file 1 "b"\n', 5, "given twice"),
        (HEAD + ".section .debug {\n", 4, "not a directive"),
        (HEAD + ".alias f, g;", 4, "not supported"),
        (HEAD + ".entry k(\n.param .u32 a,\n.param .u33 b\n){ret;}", 6, ".u33 is not a supported type"),
        (HEAD + ".entry k(.param .u32 a, .param .u32 a){ret;}", 4, "a is declared twice"),
        (HEAD + ".entry k(.param .u32 a,){ret;}", 4, "not a parameter"),
        (HEAD + ".func k(.reg .u32 a){ret;}", 4, "register parameters are not supported"),
        (HEAD + ".entry k(.param .b8 a[]){ret;}", 4, "no size"),
        (HEAD + ".entry k(){ret;}\n.entry k(){ret;}", 5, "k is defined twice"),
        (HEAD + ".func f(.param .b32 x);\n.func f(.param .b64 x){ret;}", 5, "declared differently elsewhere"),
        (HEAD + ".func f();\n.entry k(){ret;}", 4, "f is declared here and never defined"),
        (HEAD + ".entry k()\n.wide\n{ret;}", 5, "follows the signature of k"),
        (HEAD + ".entry k(){ret;};", 4, "not a directive"),
        (HEAD + ".entry k(.param .u32 s){ret;}\n.shared .b8 s[4];", 4, "a name of the module"),
        (HEAD + ".shared .b8 s[4] = {1};", 4, "no initial values"),
        (HEAD + ".shared .b8 s[];", 4, "no size"),
        (HEAD + ".global .b8 s[2] = {1,2,3};", 4, "3 bytes of initial values and 2"),
        (HEAD + ".global .b8 s[2] = {256};", 4, "does not fit"),
        (HEAD + ".global .b64 s[1] = {other};", 4, "'other' is not an operand"),
        (HEAD + ".global .f32 s = 1;", 4, "is an integer"),
        (HEAD + ".global .b32 s = 0f3F800000;", 4, "width"),
        (HEAD + ".global .b8 s[99999999999] = {1};", 4, "at most"),
        (HEAD + '.global .b8 s[3] = "hi";', 4, "not a directive"),
        (HEAD + ".shared .align 3 .b8 s[4];", 4, "power of two"),
        (HEAD + ".shared .align 4 .align 4 .b8 s[4];", 4, "twice"),
        (HEAD + ".shared .pred s;", 4, "predicate"),
    ],
)
def test_module_errors(text: str | bytes, line: int, words: str) -> None:
    error = error_of(text)
    assert error.line == line
    assert words in error.reason


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("ret }", "not an instruction"),
        ("ret\nbra X; X: ret; }", "'bra X' is not an operand"),
        ("ret\ntrap; }", "'trap' is not declared"),
        ("mov.b32 %r1, %r2\nret; }", "'%r2 ret' is not an operand"),
        ("mov.b32 %r1, [%rd1]\nmov.b32 %r1, 0; }", "not a list of operands"),
        ("mov.b32 %r1, {%r2, %r3\n; }", "not a list of operands"),
        ("ret;; }", "not an instruction"),
        ("ret;", "never closed"),
        ("{ ret; ", "never closed"),
        ("ret; } }", "not a directive"),
        ("mov.b32 %r1, %r10; }", "register '%r10' is not declared"),
        ("mov.b32 %r01, 0; }", "register '%r01' is not declared"),
        ("mov.b32 %x, 0; }", "register '%x' is not declared"),
        ("mov.b32 x, 0; }", "name 'x' is not declared"),
        ("ld.b32 %r1, [b]; }", "name 'b' is not declared"),
        ("{ .reg .b32 t; } mov.b32 t, 0; }", "name 't' is not declared"),
        ("mov.b32 t, 0; .reg .b32 t; }", "name 't' is not declared"),
        ("mov.b32 %r1, %tid; mov.b32 %r1, %tid.q; }", "not declared"),
        ("mov.b32 %r1, %r2.x; }", "no element .x"),
        (".reg .v2 .b32 v; mov.b32 %r1, v.z; }", "no element .z"),
        ("bra L; }", "name 'L' is not declared"),
        ("bra a; }", "needs a label"),
        ("bra %r1; }", "needs a label"),
        ("bra; }", "one operand"),
        ("bra L; { L: ret; } }", "name 'L' is not declared"),
        ("L: ret; L: ret; }", "L is declared twice"),
        ("L: { bra L; L: ret; } }", "L hides"),
        ("{ %r1: ret; } }", "%r1 hides"),
        (".reg .b32 %r1; mov.b32 %r1, 0; }", "%r1 is declared twice"),
        (".reg .b32 %r<3>; }", "%r is declared twice"),
        (".reg .b32 t<20>; .reg .b32 t1<3>; mov.b32 t12, 0; }", "t12 is declared twice"),
        (".reg .b32 %laneid; }", "is reserved by PTX"),
        (".reg .b32 %envreg<3>; mov.b32 %envreg1, 0; }", "is reserved by PTX"),
        ("_: ret; }", "is reserved by PTX"),
        (".reg .b32 t$1; }", "'$' in its name"),
        (".reg .b33 t; }", ".b33 is not a supported type"),
        (".reg .b32 ; }", "not the name of a register"),
        (".reg; }", "lists no registers"),
        (".reg .b32 t<; }", "not the name of a register"),
        (".local .b8 x; .local .b8 x; }", "x is declared twice"),
        ("@%r1 ret; }", "not a predicate"),
        ("@%p9 ret; }", "register '%p9' is not declared"),
        ("mov.b32 %r1, !%r2; }", "not a predicate"),
        ("mov.b32 %r1, ; }", "not an operand"),
        ("mov.b32 %r1,, %r2; }", "not an operand"),
        ("mov.b32 {%r1,}, %r2; }", "not an operand"),
        ("mov.b32 {%r1, %r2}, ; }", "an operand is missing"),
        ("mov.b32 {}, %r2; }", "not an operand"),
        ("ld.b32 %r1, []; }", "an operand is missing"),
        ("ld.b32 %r1, [%rd1-4]; }", "not an operand"),
        ("ld.b32 %r1, [_]; }", "not an address"),
        ("mov.b32 %r1, (%r2); }", "not an operand"),
        ("mov.b32 %r1, %r2+4; }", "only an address takes an offset"),
        ("mov.b32 %r1, 08; }", "'08' is not an operand"),
        ("mov.b32 %r1, 0f3F80; }", "'0f3F80' is not an operand"),
        ("mov.b32 %r1, 18446744073709551616; }", "does not fit in 64 bits"),
        ("mov.b32 %r1, " + "9" * 5000 + "; }", "is not an operand"),
        ("mov.b32 %r1, 1e999; }", "larger than any f64"),
        ("mov.b32 %r1, \u0661; }", "is not an operand"),
        ("mov.b32 %r1, ~1; }", "'~1' is not an operand"),
        ("call f; }", "name 'f' is not declared"),
        ("call a; }", "needs a function"),
        ("call k; }", "k has 0 returns and 1 parameters; this call has 0 and 0"),
        ("call (a); }", "names no function"),
        ("brx.idx %r1, T; }", "name 'T' is not declared"),
        ("L: ret; brx.idx %r1, L; }", ".branchtargets"),
        ("T: .branchtargets a; brx.idx %r1, T; }", "jump table needs a label"),
        ("{" * 70 + "}" * 71, "deeper than 64"),
    ],
)
def test_body_errors(body: str, words: str) -> None:
    assert words in error_of(ENTRY + body).reason


def test_the_line_is_that_of_the_instruction() -> None:
    assert error_of(ENTRY + "\n/*\n*/ ret; L: // x\n{\n mov.b32\n%r1, %r77; } }").line == 9


def test_the_size_limit_is_checked_first() -> None:
    assert error_of(b"\xff" * (lexer.SIZE_LIMIT + 1)).reason == (
        "the text has 33554433 bytes; the parser reads at most 33554432"
    )
    assert error_of("x" * (lexer.SIZE_LIMIT + 1)).line == 1


def test_every_truncation_raises() -> None:
    assert parse(SAMPLE, "sample.ptx").kernel().labels == {"$L__BB0_1": 1, "wait$1": 3}
    end = SAMPLE.rindex("}")
    for length in range(end + 1):
        error_of(SAMPLE[:length])


def test_every_missing_semicolon_raises() -> None:
    places = [place for place, character in enumerate(SAMPLE) if character == ";"]
    assert len(places) == 15
    for place in places:
        error_of(SAMPLE[:place] + SAMPLE[place + 1 :])


def read(text: str | bytes) -> Module | AssemblyError:
    try:
        return parse(text, "fuzz.ptx")
    except AssemblyError as caught:
        error = caught
    newlines = text.count("\n") if isinstance(text, str) else text.count(b"\n")
    assert 1 <= error.line <= newlines + 1
    return error


PIECES = [*'{}();:.,@!%"[]|-+<>=_$\\\0\n', "/*", "*/", "//", ".reg", ".loc 1 ", ".section .x {", "%r99", "\u00e9", "0x"]


@given(st.integers(0, len(SAMPLE)), st.integers(0, 12), st.lists(st.sampled_from(PIECES), max_size=3))
@settings(max_examples=examples(300), deadline=None)
def test_garbled_text_raises_nothing_else(place: int, gone: int, pieces: list[str]) -> None:
    read(SAMPLE[:place] + "".join(pieces) + SAMPLE[place + gone :])


@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=examples(300), deadline=None)
def test_flipped_bytes_raise_nothing_else(flips: list[tuple[int, int]]) -> None:
    encoded = bytearray(SAMPLE.encode())
    for place, byte in flips:
        encoded[place] = byte
    read(bytes(encoded))


@given(st.text(max_size=60) | st.binary(max_size=60))
@settings(max_examples=examples(300), deadline=None)
def test_any_body_raises_nothing_else(noise: str | bytes) -> None:
    read(noise)
    read(ENTRY.encode() + noise if isinstance(noise, bytes) else ENTRY + noise)


def test_shuffled_tokens_raise_nothing_else() -> None:
    draw = random.Random(0)
    tokens = SAMPLE.replace(";", " ; ").replace("{", " { ").replace("}", " } ").split()
    outcomes = set()
    for _ in range(300):
        first, second = draw.randrange(len(tokens)), draw.randrange(len(tokens))
        mixed = list(tokens)
        mixed[first], mixed[second] = mixed[second], mixed[first]
        outcomes.add(type(read(" ".join(mixed))))
    assert outcomes == {Module, AssemblyError}


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "{}",
        "/*",
        '"',
        "L: ",
        ".loc 1 2 3 ",
        "@%p1 ",
        "a::",
        "[",
        "-",
        "ret;",
        "{ x: bra x; }",
        "t: .branchtargets x;",
    ],
)
def test_time_is_linear(unit: str) -> None:
    started = time.process_time()
    read(ENTRY + unit * (1_000_000 // len(unit)))
    # Quadratic time for a million characters would be hours; the bound only distinguishes the two.
    assert time.process_time() - started < 60
