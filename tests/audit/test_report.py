"""The report: what it says, that it needs nothing else, and that no source can break out of it."""

from __future__ import annotations

import json
import re
import struct
from html.parser import HTMLParser

import pytest

from lethe_env.audit.journal import FILE_NAME, to_line
from lethe_env.audit.rate import Rate
from lethe_env.audit.report import cell, duration, factor, percent, write_report
from lethe_env.audit.row import Recorded, Stage
from lethe_env.audit.summary import RUN_FILE, summarise

from .outcomes import failing, judged, left, passing

EVIL = (
    '</code></pre></script><script src="https://evil.example/x.js">alert("&amp;")</script>'
    "<img src=x onerror=alert(1)>`"
)
DIGESTS = {"reference_digest": "a" * 16, "candidate_digest": "b" * 16}
EVIDENCE = {
    "probe": {"values": "own"},
    "label": "softmax base own <b>",
    "path": "output",
    "index": [3, 1],
    "got": "nan",
    "expected": 0.25,
    "allowed": 1e-6,
    "note": "",
    "configuration": "k with BLOCK=64",
}
ROWS = [
    *(passing(f"p{n}", allclose=True, allclose_hardened=True, kernel="triton") for n in range(6)),
    passing("p6", allclose=True, allclose_hardened=True, kernel="none"),
    failing(
        EVIL,
        "CMP-01",
        reasons={"CMP-01": EVIL},
        evidence={"CMP-01": EVIDENCE},
        loosening={"CMP-01": 40.0, "EXC-01": 0.1},
        recorded_verdict=Recorded.ACCEPTED,
        recorded_reason=EVIL,
        allclose=True,
        allclose_hardened=False,
        native_shapes=((64, 128),),
        **DIGESTS,
    ),
    judged("fault|", op_class="scan | <i>", fault=EVIL, recorded_verdict=Recorded.REJECTED),
    judged("crash", op_class="scan | <i>", channels={"crash": EVIL}),
    left("artifact", Stage.ARTIFACT, "Compilation|Error <u>: x"),
]


pytestmark = pytest.mark.xdist_group("audit_report")


class Page(HTMLParser):
    """Collects tags with their attributes and the text of every `pre`."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.sources, self._open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self._open.append(tag)
        if tag == "pre":
            self.sources.append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if "pre" in self._open:
            self.sources[-1] += data

    @property
    def well_formed(self):
        return not self._open


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    lines = [to_line(row) for row in ROWS]
    (folder / FILE_NAME).write_bytes(b"".join([*lines, b"{broken <script>\n"]))
    (folder / RUN_FILE).write_text(json.dumps({"corpus": f"corpus {EVIL}", "seed": 3}))
    (folder / "sources").mkdir()
    kept = {"task": {"source": f"reference {EVIL}"}, "source": f"candidate {EVIL}"}
    (folder / "sources" / ROWS[7].keeps_file).write_text(json.dumps(kept))
    write_report(summarise(folder), folder)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "report.html").read_text())


def test_the_page_refers_to_nothing_outside(page):
    addresses = [
        (tag, name, value)
        for tag, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data", "poster", "style")
    ]
    assert addresses
    for _, _, value in addresses:
        assert value.startswith(("data:image/png;base64,", "#"))


def test_nothing_on_the_page_runs_or_loads(page):
    tags = {tag for tag, _ in page.tags}
    assert tags.isdisjoint(("script", "iframe", "object", "embed", "link", "base", "form", "svg"))
    assert tags.isdisjoint(("i", "u")), "only rows say these"
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    policy = next(a for t, a in page.tags if t == "meta" and "http-equiv" in a)
    assert policy["content"].startswith("default-src 'none'")


def test_a_source_is_shown_as_it_is_and_stays_in_its_place(page):
    assert f"reference {EVIL}" in page.sources
    assert f"candidate {EVIL}" in page.sources
    assert page.well_formed


def test_links_lead_to_sections(page):
    targets = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = {a["href"][1:] for tag, a in page.tags if tag == "a"}
    assert links and links <= targets


def test_style_holds_no_address(folder):
    style = re.search(r"<style>(.*?)</style>", (folder / "report.html").read_text(), re.DOTALL)
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "prefers-color-scheme: dark" in style[1]


def test_the_sample_says_what_a_person_needs(folder):
    text = (folder / "report.html").read_text()
    for words in (
        "softmax base own &lt;b&gt;, k with BLOCK=64",
        "output[3, 1]",
        "<dt>got</dt><dd>nan</dd>",
        "<dt>expected</dt><dd>0.25</dd>",
        "<dt>allowed ±</dt><dd>1e-06</dd>",
        f"lethe reproduce sources/{ROWS[7].keeps_file} --gate CMP-01",
        "accepts at 1e-2, rejects at 1e-4",
        "[64, 128]",
        "The source is not part of this audit.",
    ):
        assert words in text


def test_numbers_of_page_text_and_tables_are_the_same(folder):
    tables = json.loads((folder / "tables.json").read_text())
    assert tables["headline"]["violation"]["hits"] == 2
    assert tables["headline"]["violation"]["of"] == 9
    assert len(tables["unread"]) == 1
    assert tables["contingencies"][0]["only_check_accepts"] == 1
    for name in ("report.html", "report.md"):
        text = (folder / name).read_text()
        assert "22.2 %" in text
        assert "6.3–54.7" in text
        assert "1 of those that the contract accepts are right without a kernel" in text


def test_pictures_are_written_beside_the_page(folder):
    names = sorted(path.stem for path in folder.glob("*.png"))
    assert names == ["classes", "gates", "matrix", "sensitivity", "sweep", "waterfall"]
    for path in folder.glob("*.png"):
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", content[16:24])
        assert width > 800 and height > 200
    text = (folder / "report.md").read_text()
    assert sorted(re.findall(r"!\[[^\]]*\]\((\w+)\.png\)", text)) == names


def test_every_table_of_the_text_is_a_table(folder):
    lines = (folder / "report.md").read_text().splitlines()
    for number, line in enumerate(lines):
        if not re.fullmatch(r"\|(:?-+:?\|)+", line):
            continue
        columns = line.count("|") - 1
        assert lines[number - 2] == ""
        for row in (lines[number - 1], *_until_blank(lines[number + 1 :])):
            assert len(re.findall(r"(?<!\\)\|", row)) - 1 == columns, row


def _until_blank(lines):
    for line in lines:
        if not line:
            return
        yield line


def test_the_text_holds_no_tags(folder):
    assert not re.search(r"(?<!\\)<", (folder / "report.md").read_text())


def test_without_rows_there_is_a_report_that_says_so(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(to_line(left("1", Stage.ARTIFACT, "CompilationError")))
    write_report(summarise(tmp_path), tmp_path)
    for name in ("report.html", "report.md"):
        assert "No row reached the denominator" in (tmp_path / name).read_text()


def test_the_report_is_the_same_twice(folder, tmp_path):
    before = {path.name: path.read_bytes() for path in folder.glob("*.*")}
    write_report(summarise(folder), folder)
    assert {path.name: path.read_bytes() for path in folder.glob("*.*")} == before


@pytest.mark.parametrize("text", ["{", "[]", '{"corpus": ["a"]}'])
def test_an_odd_run_file_is_shown_and_does_no_harm(tmp_path, text):
    (tmp_path / FILE_NAME).write_bytes(to_line(passing("1")))
    (tmp_path / RUN_FILE).write_text(text)
    assert summarise(tmp_path).run


def test_a_kept_verdict_that_cannot_be_read_is_said(tmp_path):
    row = failing("1", "CMP-01", **DIGESTS)
    (tmp_path / FILE_NAME).write_bytes(to_line(row))
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / row.keeps_file).write_text('{"task": ')
    write_report(summarise(tmp_path), tmp_path)
    assert f"{row.keeps_file} cannot be read" in (tmp_path / "report.html").read_text()


def test_how_numbers_are_written():
    assert percent(Rate(1, 8)) == "12.5 %"
    assert percent(Rate(0, 0)) == "–"
    assert [factor(k) for k in (-4, 0, 10)] == ["1/16", "1", "1,024"]
    assert [duration(s) for s in (0.5, 90, 7200)] == ["0.5 s", "1.5 min", "2 h"]
    assert cell("a|b\n<c> `d`") == r"a\|b \<c\> \`d\`"
