"""Configurations for real runs: TRL's own parser takes every key, and the parts fit together."""

import os
from dataclasses import fields
from importlib import import_module
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import yaml
from trl import GRPOConfig, ModelConfig, TrlParser, get_peft_config
from trl.scripts.grpo import GRPOScriptArguments

import lethe_env.agents

CONFIGS = sorted((Path(lethe_env.agents.__file__).parent / "configs").glob("*.yaml"))
KINDS = (GRPOScriptArguments, GRPOConfig, ModelConfig)
NO_GPU = ["--use_cpu", "true", "--bf16", "false", "--gradient_checkpointing", "false"]

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)  # the trainer's own


def test_there_are_configurations():
    assert [path.stem for path in CONFIGS] == ["qwen_coder_colocate", "qwen_coder_server"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_makes_the_arguments_of_a_trainer(path, tmp_path):
    known = {field.name for kind in KINDS for field in fields(kind)}
    assert yaml.safe_load(path.read_text()).keys() <= known
    extra = [*NO_GPU, "--output_dir", str(tmp_path)]
    script, training, model = TrlParser(KINDS).parse_args_and_config(
        ["--config", str(path), *extra]
    )
    functions = [_imported(name) for name in script.reward_funcs]
    names = [function.__name__ for function in functions]
    assert names == ["contract_reward", "allclose_reward", "floor_reward"]
    assert training.reward_weights == [1.0, 0.0, 0.0]
    assert training.use_vllm and training.vllm_mode in path.stem
    adapter = get_peft_config(model)
    assert adapter.r == 32 and adapter.target_modules == "all-linear"
    assert training.generation_batch_size % training.num_generations == 0


def _imported(name):
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)
