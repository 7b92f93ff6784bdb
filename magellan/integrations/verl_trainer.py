"""A curriculum in verl 0.9: its synchronous trainer, with rows drawn by `CurriculumSampler`.

    loaded=runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES=magellan.integrations.verl_trainer
    python -m verl.trainer.main_ppo +ray_kwargs.ray_init.$loaded \\
        trainer.v1.trainer_mode=curriculum +data.curriculum.sampler=learnability ...

With `+algorithm.gate=spread`, or another name in `magellan.curriculum.GATES`, only some answers are
trained on: the others get no advantage, and no weight in the mean over tokens.

The scores of a step reach the curriculum before its checkpoint is saved and before the next draw,
so that a run that was resumed draws what one without a stop draws.
"""

from __future__ import annotations

from typing import Any

import torch
import transfer_queue
from tensordict import TensorDict
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from magellan.core.errors import InputError, not_allowed
from magellan.curriculum import GATES
from magellan.integrations.verl import CurriculumSampler


@register_trainer("curriculum")
class CurriculumTrainer(PPOTrainerSync):
    """verl's trainer, which draws rows by a curriculum and reports the scores of answers to it.

    Raises:
        InputError: `algorithm.filter_groups` is enabled, which discards groups of equal scores
            before the curriculum sees them; `algorithm.gate` is unknown; `data.sampler` names
            another sampler; or a row has no unique `extra_info.index`.
    """

    train_dataloader: Any

    def __init__(self, config: Any) -> None:
        if (config.algorithm.get("filter_groups") or {}).get("enable"):
            hidden = "the curriculum would not see groups of equal scores"
            raise InputError(f"algorithm.filter_groups.enable: True; {hidden}; allowed: False")
        self._gate = config.algorithm.get("gate") or "all"
        if not isinstance(self._gate, str) or self._gate not in GATES:
            raise not_allowed("algorithm.gate", self._gate, ", ".join(GATES))
        other = (config.data.get("sampler") or {}).get("class_path")
        if other:
            why = ", as the curriculum draws the rows"
            raise not_allowed("data.sampler.class_path", other, "null", why)
        config.trainer.v1.trainer_mode = "sync"  # verl compares it with its own modes
        super().__init__(config)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        uniform = self.train_dataloader
        self.curriculum_sampler = CurriculumSampler(self.train_dataset, self.config.data)
        self.train_dataloader = StatefulDataLoader(  # no workers, which would draw ahead
            self.train_dataset,
            uniform.batch_size,
            sampler=self.curriculum_sampler,
            collate_fn=uniform.collate_fn,
            drop_last=True,
        )

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        # A key is `{draw}_{answer}_{part}`; the parts of an answer share its score.
        pairs = zip(batch.keys, batch.tags, strict=True)
        rows = [key for key, tag in pairs if not tag.get("is_padding")]
        data = transfer_queue.kv_batch_get(
            keys=list({key.rsplit("_", 1)[0]: key for key in rows}.values()),
            partition_id=batch.partition_id,
            select_fields=["extra_info", "rm_scores"],
        )
        scores = torch.stack([score.sum() for score in data["rm_scores"].unbind()])
        goals = self.curriculum_sampler.record(list(data["extra_info"]), scores)
        curriculum = self.curriculum_sampler.curriculum
        metrics.update(curriculum.metrics("curriculum/"))
        batch = super()._compute_advantage(batch, metrics)
        if self._gate != "all":
            answers = dict.fromkeys(key.rsplit("_", 1)[0] for key in rows)
            draws = [answer.rsplit("_", 1)[0] for answer in answers]
            admitted = curriculum.admitted(goals, scores, self._gate, draws)
            metrics["curriculum/admitted"] = float(admitted.mean())
            refused = {answer for answer, ok in zip(answers, admitted, strict=True) if not ok}
            self._leave_out([key for key in rows if key.rsplit("_", 1)[0] in refused], batch)
        return batch

    def _leave_out(self, keys: list[str], batch: Any) -> None:
        """Take away the advantage of parts of answers, and their mask if others are left."""
        if not keys:
            return
        names = ["advantages", "response_mask", "loss_mask"]
        fields = transfer_queue.kv_batch_get(
            keys=keys, partition_id=batch.partition_id, select_fields=names
        )
        real = [tag for tag in batch.tags if not tag.get("is_padding")]
        emptied = names if len(keys) < len(real) else names[:1]
        zeros = TensorDict({name: fields[name] * 0 for name in emptied}, batch_size=len(keys))
        transfer_queue.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=zeros)
