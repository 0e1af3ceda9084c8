import random
import string

import pytest

from lethe_env.reward import extract_source

SOURCE = "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
OTHER = "import torch\nx = 1\n"


def fenced(source: str, language: str = "python", ticks: str = "```") -> str:
    return f"{ticks}{language}\n{source}{ticks}\n"


def call(arguments, name="submit_kernel"):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    "text",
    [
        SOURCE,
        fenced(SOURCE),
        fenced(SOURCE, ""),
        fenced(SOURCE, "python", "~~~~"),
        f"Here it is: {fenced(SOURCE)}It is fast.",
        fenced(OTHER) + fenced(SOURCE) + fenced(OTHER),
        fenced(SOURCE.replace("pass", "x = 1")) + "better:\n" + fenced(SOURCE),
        fenced(SOURCE) + f"```python\n{SOURCE[:40]}",
        f"```python\n{SOURCE}",
        fenced(SOURCE).replace("\n", "\r\n"),
        f"<think>{fenced(OTHER)}</think>{fenced(SOURCE)}",
        fenced(OTHER, "python") + fenced(SOURCE, "cpp"),
        f"\ud800 prose {fenced(SOURCE)}",
        fenced(SOURCE).encode(),
        [{"role": "user", "content": fenced(OTHER)}, {"role": "assistant", "content": SOURCE}],
        [{"role": "assistant", "content": [{"type": "text", "text": fenced(SOURCE)}]}],
        [{"role": "assistant", "content": "", "tool_calls": [call({"source": SOURCE})]}],
        [{"role": "assistant", "tool_calls": [call('{"source": "x"}'), call({"source": SOURCE})]}],
        [
            {"role": "assistant", "content": None, "tool_calls": [call({"source": SOURCE})]},
            {"role": "tool", "content": fenced(OTHER)},
            {"role": "assistant", "content": "I am done."},
        ],
    ],
)
def test_the_source_is_found(text):
    found = extract_source(text)
    assert found.source is not None, found.reason
    assert found.source.replace("\r\n", "\n").strip() == SOURCE.strip()


def test_the_last_python_block_stands_in_where_none_defines_the_model():
    text = fenced("a = 1\n") + fenced("b = 2\n") + fenced("int main() {}\n", "cpp")
    assert extract_source(text).source == "b = 2\n"


def test_fences_in_a_docstring_do_not_cut_bare_source():
    source = f'"""Example:\n```python\nx\n```\n"""\n{SOURCE}'
    assert extract_source(source).source == source


@pytest.mark.parametrize(
    ("completion", "reason"),
    [
        ("", "empty"),
        ([], "no message"),
        ([{"role": "user", "content": SOURCE}], "no message"),
        ("I cannot do this.", "no Python"),
        (fenced("int x;\n", "cpp"), "no Python"),
        (f"<think>{fenced(SOURCE)}", "reasoning"),
        (fenced(SOURCE + "'\ud800'\n"), "no Unicode"),
        ("x" * (1 << 23), "more than"),
        (None, "NoneType"),
        (17, "int"),
        ([None, 3, "x"], "no message"),
        ([{"role": "assistant", "content": {"a": 1}, "tool_calls": [None, call("{")]}], "empty"),
        ([{"role": "assistant", "tool_calls": [call({"source": SOURCE}, "rm")]}], "empty"),
    ],
)
def test_no_source_comes_with_the_reason(completion, reason):
    found = extract_source(completion)
    assert found.source is None
    assert reason in found.reason


MEGABYTE = 1 << 20


@pytest.mark.parametrize("line", ["`" * MEGABYTE + "x`", " " * MEGABYTE, f"``` {'a' * MEGABYTE}`"])
def test_a_megabyte_in_one_line_takes_linear_time(line):
    assert extract_source(f"{line}\n{line}").source is None  # in quadratic time this takes hours


def test_a_megabyte_of_fences_hides_no_block():
    assert extract_source("```\n" * (MEGABYTE // 4) + fenced(SOURCE)).source == SOURCE


def test_a_thousand_malformed_completions_raise_nothing():
    draw = random.Random(0)
    pieces = [*string.printable, "```", "```python\n", "~~~", "class ModelNew", "\ud800", "\x00",
              "<think>", "</think>", SOURCE, "é", "\u2028"]  # fmt: skip
    for _ in range(1000):
        text = "".join(draw.choices(pieces, k=draw.randrange(80)))
        chat = [{"role": draw.choice(["assistant", "tool", None]), "content": text,
                 "tool_calls": [call(text), text, {"function": text}]}]  # fmt: skip
        for completion in (text, text.encode("utf-8", "replace"), chat, [text]):
            found = extract_source(completion)
            assert found.reason
            if found.source is not None:
                found.source.encode()
