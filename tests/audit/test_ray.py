"""A cluster of two nodes on this machine, of which one is killed."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from lethe_env.audit.row import Row

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'lethe_env[dist]'")
pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own, which differ from release to release
]

ROWS = 24


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.second = made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def slow_judges():
    """Judges that tell where they are, and are in no hurry."""

    class SlowJudge:
        def judge(self, row):
            import os
            import time

            from lethe_env.audit.judge import Judged
            from lethe_env.audit.row import Outcome, Stage

            time.sleep(0.3)
            if "raises" in row.candidate:
                raise ZeroDivisionError("a bug of ours")
            if "kills" in row.candidate:
                os._exit(1)
            node = ray.get_runtime_context().get_node_id()
            return Judged(Outcome(id=row.id, stage=Stage.GATED, reason=node, passed=True))

    return SlowJudge()


def knowing_judges(truth):
    """Judges that say what a table says of each id."""

    class KnowingJudge:
        def judge(self, row):
            from lethe_env.audit.judge import Judged
            from lethe_env.audit.row import Outcome

            stage, passed = truth[row.id]
            return Judged(Outcome(id=row.id, stage=stage, passed=passed, floor_passed=passed))

    return KnowingJudge


def rows(*sources):
    return [Row(id=f"row{i}", reference="r", candidate=s) for i, s in enumerate(sources)]


def finish(bench, todo, after=None):
    """Put rows in as there is room, as a run does, and take everything out."""
    outcomes, left, under_way = [], list(todo), 0
    deadline = time.monotonic() + 120
    while left or under_way:
        assert time.monotonic() < deadline, f"{under_way} rows never came back"
        while left and under_way < bench.capacity:
            bench.put(left.pop(0))
            under_way += 1
        judged = bench.get(0.5)
        if judged is not None:
            under_way -= 1
            outcomes.append(judged.outcome)
            if after is not None:
                after(outcomes)
    return outcomes


def come_up(bench):
    """Wait until every actor runs, as the first rows would."""
    deadline = time.monotonic() + 120
    while len(bench._idle) < bench.capacity:
        assert time.monotonic() < deadline, "an actor did not start"
        assert bench.get(0.5) is None


def test_nothing_is_lost_or_counted_twice_when_a_node_dies(cluster):
    from lethe_env.audit.ray import RayBench

    bench = RayBench(make_judge=slow_judges)
    come_up(bench)
    killed = []

    def kill(outcomes):
        if len(outcomes) == 6:
            killed.append(cluster.second.node_id)
            cluster.remove_node(cluster.second, allow_graceful=False)

    outcomes = finish(bench, rows(*["fine"] * ROWS), kill)
    bench.close()
    assert Counter(o.id for o in outcomes) == Counter(f"row{i}" for i in range(ROWS))
    assert all(o.passed for o in outcomes)
    assert bench.capacity == 2 and len(killed) == 1
    assert killed[0] in {o.reason for o in outcomes[:6]}, "the node that died had worked"
    assert killed[0] not in {o.reason for o in outcomes[10:]}


def test_only_a_lost_actor_is_tried_again_and_not_for_ever(cluster):
    from lethe_env.audit.ray import ATTEMPTS, RayBench

    bench = RayBench(make_judge=slow_judges)
    outcomes = {o.id: o for o in finish(bench, rows("fine", "raises", "kills", "fine"))}
    bench.close()
    assert [outcomes[f"row{i}"].stage.value for i in range(4)] == [
        "gated",
        "error",
        "error",
        "gated",
    ]
    assert "a bug of ours" in outcomes["row1"].reason
    assert f"{ATTEMPTS} actors were lost" in outcomes["row2"].reason


def test_a_known_corpus_gives_its_table_though_it_is_interrupted_three_times(cluster, tmp_path):
    from lethe_env.audit.journal import FILE_NAME, read_outcomes
    from lethe_env.audit.ledger import Ledger
    from lethe_env.audit.presets import open_corpus
    from lethe_env.audit.ray import RayBench
    from lethe_env.audit.run import Plan, Stop, run
    from lethe_env.audit.synthetic import write_synthetic

    truth = {}
    for each in write_synthetic(tmp_path / "corpus.jsonl"):
        name = f"{each.id} (time 2)" if each.id in truth else each.id
        truth[name] = (each.stage, each.passed)
    for patience in (20, 50, 30, 10_000):
        stop, seen = Stop(), []

        def report(outcome, stop=stop, seen=seen, patience=patience):
            seen.append(outcome.id)
            if len(seen) == patience:
                stop.ask()

        bench = RayBench(make_judge=knowing_judges(truth))
        items = Plan().items(open_corpus(str(tmp_path / "corpus.jsonl")))
        with Ledger(tmp_path / "out", {}, print) as ledger:
            assert run(items, bench, ledger, Plan(), stop, report) is (patience == 10_000)
        bench.close()
    found = list(read_outcomes(tmp_path / "out" / FILE_NAME, print))
    assert len(found) == len(truth) == 200
    assert {o.id: (o.stage, o.passed) for o in found} == truth
