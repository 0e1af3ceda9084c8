"""Whose exception it is, by whose code raised it."""

import pytest
import triton

from lethe_env.cell.conversation import LostError
from lethe_env.cell.excuses import excuse
from lethe_env.cell.requests import Limits
from lethe_env.cell.translation import Client, Desk, Translator
from lethe_env.vgpu.arguments import flatten
from lethe_env.vgpu.driver import Launcher
from lethe_env.vgpu.machine import program
from lethe_env.vgpu.ptx.model import UnsupportedError
from lethe_env.vgpu.ptx.parser import parse
from lethe_env.vgpu.session import LaunchError


def caught(call):
    with pytest.raises(Exception) as raised:
        call()
    return raised.value


def test_what_the_virtual_gpu_raises_itself_is_a_limitation():
    kind, reason = excuse(caught(lambda: parse("no PTX at all")))
    assert (kind, reason[:30]) == ("unsupported", "unsupported by the virtual GPU")


def test_an_error_within_the_virtual_gpu_is_ours():
    kind, reason = excuse(caught(lambda: program.Program(None, b"")))
    assert kind == "harness" and "AttributeError" in reason


def test_bad_values_of_a_launch_are_the_candidates():
    assert excuse(caught(lambda: list(flatten(["n"], ["fp32"], ["x"], None)))) is None


def test_a_launch_that_a_gpu_would_refuse_is_the_candidates():
    launcher = Launcher.__new__(Launcher)
    call = lambda: launcher(1, 1 << 20, 1, 0, None, None, None, None, None)  # noqa: E731
    assert isinstance(caught(call), LaunchError) and excuse(caught(call)) is None


def test_the_same_words_from_elsewhere_are_no_excuse():
    def forge(error):
        raise error

    for error in (
        UnsupportedError("vadd4"),
        triton.compiler.errors.CompilationError(None, None, "not supported in this architecture"),
        KeyError("lethe_env.vgpu"),
    ):
        assert excuse(caught(lambda error=error: forge(error))) is None


class Talk:
    """A conversation with a translator that ends, or answers."""

    def __init__(self, reply):
        self.reply, self.open = reply, True

    def ask(self, question, seconds):
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def close(self):
        self.open = False


@pytest.fixture
def clerk(tmp_path, monkeypatch):
    monkeypatch.setenv("LETHE_CACHE_DIR", str(tmp_path))
    return lambda reply: Desk(lambda task: Talk(reply), Limits()).clerk()


@pytest.mark.parametrize(
    "reply", [LostError("ended", "", -11), {"broken": "KeyError: 'x'"}, {"broken": "LLVM ERROR"}]
)
def test_a_translator_that_breaks_is_remembered_as_ours(clerk, reply):
    desk = clerk(reply)
    assert "broken" in desk.answer({"ask": "translate", "ptx": "anything"})
    kind, reason = desk.take_denial()
    assert kind == "harness" and ("-11" in reason or reply["broken"] in reason)
    assert desk.take_denial() is None


def test_a_refusal_is_remembered_as_a_limitation(clerk):
    desk = clerk({"unsupported": "vadd4"})
    assert desk.answer({"ask": "translate", "ptx": "anything"}) == {"unsupported": "vadd4"}
    assert desk.take_denial() == ("unsupported", "unsupported by the virtual GPU: vadd4")


def test_a_python_error_of_the_translator_is_no_refusal(monkeypatch):
    monkeypatch.setattr(program, "translate", lambda ptx: {}["gone"])
    assert Translator(None)._translate({"ptx": "x"}) == {"broken": "KeyError: 'gone'"}


def test_what_the_desk_says_reaches_the_cell_as_its_own_error(monkeypatch):
    from lethe_env.cell import translation

    monkeypatch.setattr(translation, "send", lambda channel, message: None)
    for answer, kind in (({"broken": "x"}, "harness"), ({"unsupported": "x"}, "unsupported")):
        monkeypatch.setattr(translation, "receive", lambda channel, answer=answer: answer)
        assert excuse(caught(lambda: Client(None)("ptx")))[0] == kind
