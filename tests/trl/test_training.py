import math
import sys

import datasets.config
import pandas as pd
import pytest
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.scripts import grpo

from lethe_env.reward import ContractReward, RewardShape
from lethe_env.service.jobs import Job
from lethe_env.tasks.catalog import suite
from lethe_env.trl import LetheSpec, use_verifier

from ..doubling import DOUBLE
from .fakes import TASK, source
from .tiny import Scripted, policy, tokenizer, tool_call

SHAPE = RewardShape()
STEPS = 4

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)  # the trainers' own


@pytest.fixture(scope="module")
def words():
    return tokenizer()


@pytest.fixture
def train(words, verifier, tmp_path):
    """Train for a few steps and return the trainer."""

    def run(trainer=GRPOTrainer, config=GRPOConfig, script=None, steps=STEPS, **fields):
        options = {name: fields.pop(name) for name in list(fields) if name in CONFIG}
        fields.setdefault("prompt", lambda task: [{"role": "user", "content": task.id}])
        spec = LetheSpec(fields.pop("tasks", TASK), verifier=fields.pop("by", verifier), **fields)
        made = trainer(
            model=policy(words),
            processing_class=words,
            args=config(
                output_dir=str(tmp_path),
                reward_weights=spec.reward_weights,
                max_steps=steps,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                report_to="none",
                per_device_train_batch_size=4,
                num_generations=4,
                logging_steps=1,
                save_strategy="no",
                learning_rate=1e-2,
                **{"max_completion_length": 12, **options},
            ),
            **spec.trainer_arguments,
        )
        made.script = script
        made.train()
        return made

    return run


CONFIG = ("beta", "log_completions", "max_completion_length", "num_completions_to_print")
KINDS = [source(), source("CMP-01"), source("CMP-01", "EXC-01", "allclose"), "no code"]


def write(index: int, prompt: str) -> str:
    return KINDS[index % len(KINDS)]


def steps_of(trainer) -> list[dict]:
    return [entry for entry in trainer.state.log_history if "reward" in entry]


@pytest.mark.parametrize("reward", ["contract", "allclose"])
def test_four_steps_log_both_numbers_and_optimise_one(train, reward, verifier, tmp_path):
    trainer = train(Scripted, script=write, reward=reward, log_completions=True)
    steps = steps_of(trainer)
    assert len(steps) == STEPS
    assert len({frozenset(step) for step in steps}) == 1
    contract, allclose = (steps[0][f"rewards/{n}_reward/mean"] for n in ("contract", "allclose"))
    judged = verifier.grade_many([Job(suite()[TASK], text) for text in KINDS[:3]])
    assert contract == pytest.approx(sum(map(ContractReward(), judged)) / 4)
    assert allclose == pytest.approx(SHAPE.solved * 2 / 4) != contract
    assert steps[0]["reward"] == pytest.approx({"contract": contract, "allclose": allclose}[reward])
    assert steps[0]["lethe/reward/contract"] == pytest.approx(contract)
    assert steps[0]["lethe/fails/EXC-01"] == pytest.approx(2 / 4)
    assert len(verifier.batches) == 2  # one for four steps, and the one above
    table = pd.read_parquet(sorted((tmp_path / "completions").glob("*.parquet"))[-1])
    assert table["status"].tolist() == ["accepted", "rejected", "rejected", "rejected"]
    assert table["task"].tolist() == [TASK] * 4
    assert {"contract_reward", "allclose_reward", "floor_reward", "reason"} < set(table.columns)


def test_a_sampled_policy_trains_with_every_completion_worth_nothing(train, verifier):
    steps = steps_of(train())
    assert [step["reward"] for step in steps] == [0.0] * STEPS
    assert verifier.judged == []


def test_rows_whose_harness_broke_move_nothing(train, verifier):
    def half_void(index, prompt):
        return source("void") if index == 0 else KINDS[index]

    step = steps_of(train(Scripted, script=half_void, steps=1))[0]
    judged = verifier.grade_many([Job(suite()[TASK], text) for text in KINDS[1:3]])
    assert step["lethe/void"] == pytest.approx(1 / 4)
    assert step["reward"] == pytest.approx(sum(map(ContractReward(), judged)) / 3)
    assert step["rewards/allclose_reward/mean"] == pytest.approx(SHAPE.solved / 3)
    verifier.broken = True
    broken = train(Scripted, script=write, steps=2)
    assert [s["lethe/void"] for s in steps_of(broken)] == [3 / 4, 3 / 4]
    assert all(s["grad_norm"] == 0.0 for s in steps_of(broken))


def test_rloo_takes_the_same_functions(train):
    steps = steps_of(train(RLOOTrainer, RLOOConfig, steps=1, beta=0.0))
    assert steps[0]["rewards/contract_reward/mean"] == 0.0
    assert steps[0]["lethe/unloadable"] == 1.0


def test_several_turns_pay_for_the_best_judged_attempt(train, verifier):
    prompts: list[str] = []
    attempts = [source("CMP-01"), source("RES-02"), source("ORD-02"), source()]

    def improve(index, prompt):
        prompts.append(prompt)
        turn = prompt.count("<tool_response>")
        return tool_call(attempts[turn]) if turn < len(attempts) else "done"

    trainer = train(
        Scripted, script=improve, multi_turn=True, max_turns=3, steps=1, max_completion_length=9999
    )
    step = steps_of(trainer)[0]
    judged = verifier.grade_many([Job(suite()[TASK], text) for text in attempts[:3]])
    assert step["reward"] == pytest.approx(max(map(ContractReward(), judged)))
    assert step["rewards/KernelToolEnv/mean"] == step["reward"]
    assert step["rewards/contract_reward/mean"] == pytest.approx(step["reward"])
    assert step["lethe/fails/RES-02"] == 1.0
    assert "Rejected by CMP-01" in prompts[-1]
    assert "All 3 attempts are spent" in prompts[-1]


KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, {}, mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
"""


class Recorder:
    """Passes jobs on to a verifier and keeps what it said."""

    def __init__(self, verifier):
        self.verifier = verifier
        self.verdicts = []

    def grade_many(self, jobs, progress=None):
        self.verdicts += self.verifier.grade_many(jobs, progress)
        return self.verdicts[-len(jobs) :]

    def close(self):
        pass


def test_real_verdicts_rank_real_kernels(train, interpreter, make_task):
    slow = dict.fromkeys(("CMP-03", "PRC-01"), "many specialisations to compile")
    task = make_task(DOUBLE, op_class="elementwise", waived=slow)
    written = [
        f"```python\n{KERNEL.format('x + x')}```",
        KERNEL.format("x * 2.01"),
        KERNEL.format("tl.where(x == x, x + x, 0.0)"),
        "class ModelNew: pass",
    ]
    recorder = Recorder(interpreter)
    trainer = train(Scripted, script=lambda i, _: written[i], tasks=[task], by=recorder, steps=1)
    step = steps_of(trainer)[0]
    contract, allclose, _ = (function.reward for function in trainer.reward_funcs)
    verdicts = recorder.verdicts
    paid = [contract(verdict) for verdict in verdicts]
    assert paid[0] >= SHAPE.lowest_solved > SHAPE.partial_limit > max(paid[1:])
    assert paid[2] > paid[1] > paid[3] == 0.0
    assert [allclose(v) > 0 for v in verdicts] == [True, False, True, False]
    assert step["reward"] == pytest.approx(math.fsum(paid) / 4)
    assert step["lethe/false_accepts"] == pytest.approx(1 / 4)


def test_the_command_of_trl_takes_the_functions_by_their_path(
    words, verifier, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command adds the folder it is run in
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    use_verifier(verifier)
    policy(words).save_pretrained("model")
    words.save_pretrained("model")
    LetheSpec(TASK, prompt=lambda task: task.id).save("data")
    arguments = [
        *("--model_name_or_path", "model", "--dataset_name", "data", "--output_dir", "out"),
        *("--reward_funcs", "lethe_env.trl.contract_reward", "lethe_env.trl.floor_reward"),
        *("--reward_weights", "1", "0", "--max_steps", "1", "--use_cpu", "--bf16", "false"),
        *("--gradient_checkpointing", "false", "--report_to", "none", "--save_strategy", "no"),
        *("--per_device_train_batch_size", "2", "--num_generations", "2"),
        *("--max_completion_length", "8", "--logging_steps", "1", "--dtype", "float32"),
    ]
    logged = []
    monkeypatch.setattr(
        GRPOTrainer, "log", lambda self, *_: logged.append(dict(self._metrics["train"]))
    )
    grpo.main(*grpo.make_parser().parse_args_and_config(arguments))
    assert logged[0]["rewards/contract_reward/mean"] == [0.0]
    assert logged[0]["lethe/unloadable"] == [1.0]
