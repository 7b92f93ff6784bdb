"""A curriculum in the loop of verl 0.9 itself, where it is installed: no model, no GPU.

Loader, queue, replay buffer, padding, advantages and checkpoints of the loader are verl's. Rows
are answered by a stand-in of its rollout, and actor and weights are left out.
"""

import types
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

verl = pytest.importorskip("verl")
hydra = pytest.importorskip("hydra")  # verl's own
pytestmark = pytest.mark.slow
ROWS, SOLVABLE, ANSWERS = 40, 30, 3
CURRICULUM = ("sampler=learnability", "seed=4", "settings.samplers.epsilon_decay=2.0")


@pytest.fixture(scope="module", autouse=True)
def queue():
    """The queue of verl's trainer, in a Ray of its own."""
    import ray
    import transfer_queue

    ray.init(num_cpus=32, include_dashboard=False)
    transfer_queue.init()
    yield transfer_queue
    transfer_queue.close()
    ray.shutdown()


class Rollout:
    """Three answers to each row, each in two parts; two of three to a solvable row score."""

    def __init__(self, queue):
        self.queue, self.drawn = queue, []  # type: Any, list[int]

    def generate_sequences(self, batch):
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        for uid, extra in zip(batch["uid"], batch["extra_info"], strict=True):
            place = extra["index"] // 3
            self.drawn.append(place)
            answers = {}
            for number in range(ANSWERS):
                for part in range(2):
                    length = 4 + part
                    scores = torch.zeros(length)
                    scores[-1] = place >= SOLVABLE and number < 2
                    ids, ones = torch.arange(3 + length), torch.ones(length, dtype=torch.int64)
                    answers[f"{uid}_{number}_{part}"] = {
                        **dict.fromkeys(("input_ids", "position_ids"), ids),
                        **dict.fromkeys(("response_mask", "loss_mask"), ones),
                        "prompts": ids[:3],
                        "responses": ids[3:],
                        "rm_scores": scores,
                        "uid": uid,
                        "extra_info": extra,
                        "old_log_probs": torch.zeros(length),
                    }
            tags = [
                {"status": "success", "prompt_len": 3, "global_steps": 1}
                | {"response_len": len(answer["responses"]), "seq_len": len(answer["input_ids"])}
                for answer in answers.values()
            ]
            fields = list_of_dict_to_tensordict(list(answers.values()))
            put = partial(self.queue.kv_batch_put, partition_id="train")
            put(keys=list(answers), fields=fields, tags=tags)
            put(keys=[uid], tags=[{"is_prompt": True, "status": "finished"}])


def config_of(folder, steps, resume):
    """verl's configuration of a run on 40 rows, eight a step."""
    prompts = [[{"role": "user", "content": f"What is {n} + {n}?"}] for n in range(ROWS)]
    rows = {"prompt": prompts, "extra_info": [{"index": 3 * n} for n in range(ROWS)]}
    folder.mkdir(exist_ok=True)
    pd.DataFrame(rows | {"data_source": "sums"}).to_parquet(folder / "rows.parquet")
    overrides = [
        *(f"data.{split}_files={folder}/rows.parquet" for split in ("train", "val")),
        *("data.train_batch_size=8", "data.filter_overlong_prompts=False"),
        *("algorithm.adv_estimator=grpo", f"actor_rollout_ref.rollout.n={ANSWERS}"),
        *("actor_rollout_ref.model.path=none", "actor_rollout_ref.rollout.name=vllm"),
        *(f"trainer.total_training_steps={steps}", "trainer.total_epochs=100"),
        *("trainer.save_freq=5", "trainer.test_freq=-1", "trainer.val_before_train=False"),
        *(f"trainer.default_local_dir={folder}/checkpoints", f"trainer.resume_mode={resume}"),
        *("trainer.v1.trainer_mode=curriculum", "trainer.n_gpus_per_node=1", "trainer.logger=[]"),
        *(f"+data.curriculum.{setting}" for setting in CURRICULUM),
        "+algorithm.gate=spread",
    ]
    configs = f"{Path(verl.__file__).parent}/trainer/config"
    with hydra.initialize_config_dir(configs, version_base=None):
        return hydra.compose("ppo_trainer", overrides)


def train(queue, folder, steps, resume):
    """Run verl's loop; the rows drawn, and the curriculum at the end."""
    from magellan.integrations.verl_trainer import CurriculumTrainer

    calls = ("save_checkpoint", "load_checkpoint", "update_weights", "sleep_replicas")
    nothing = types.SimpleNamespace(**dict.fromkeys(calls, lambda *_, **__: None))
    nothing._dispatch_info = {"actor": list(range(5))}  # five workers, so that batches are padded
    nothing.reward_loop_worker_handles = ["a reward worker"]

    class Trainer(CurriculumTrainer):
        def _setup(self):
            self.tokenizer = types.SimpleNamespace(pad_token_id=0, eos_token_id=1)
            self.processor = None
            self.actor_rollout_wg = self.checkpoint_manager = self.reward_loop_manager = nothing
            self.use_reference_policy = self.use_critic = False
            self._init_dataloader()
            self._init_dump_executor()
            self._load_checkpoint()

        def _get_required_batch_multiple(self, dp_size):
            return dp_size

        def _compute_old_log_prob(self, batch, metrics):
            return batch

        def _update_actor(self, batch, metrics):
            assert any(tag.get("is_padding") for tag in batch.tags)
            tags = zip(batch.keys, batch.tags, strict=True)
            names = ["extra_info", "advantages", "response_mask", "loss_mask"]
            keys = [key for key, tag in tags if not tag.get("is_padding")]
            data = queue.kv_batch_get(
                keys=keys, partition_id=batch.partition_id, select_fields=names
            )
            places = [extra["index"] // 3 for extra in data["extra_info"]]
            admitted = [place >= SOLVABLE for place in places]  # the others all score 0
            for name in names[1:]:
                some = [bool(values.any()) for values in data[name].unbind()]
                assert some == (admitted if any(admitted) or name == "advantages" else [True] * 48)
            return batch

        def _compute_metrics(self, *arguments, **named):
            pass

    trainer, rollout = Trainer(config_of(folder, steps, resume)), Rollout(queue)
    trainer.init()
    trainer.fit(rollout)
    return rollout.drawn, trainer.curriculum_sampler.curriculum


def test_it_practises_what_it_can_learn_and_goes_on_where_it_stopped(queue, tmp_path):
    whole, curriculum = train(queue, tmp_path / "whole", 12, "disable")
    assert curriculum.state_dict()["episodes"] == 12 * 8 * ANSWERS
    assert np.mean(np.array(whole[48:]) >= SOLVABLE) > 0.6  # a quarter of the rows
    first, _ = train(queue, tmp_path / "parts", 5, "disable")
    rest, resumed = train(queue, tmp_path / "parts", 12, "auto")
    assert first + rest == whole
    np.testing.assert_array_equal(resumed.competence(), curriculum.competence())
