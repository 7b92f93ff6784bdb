"""A curriculum in verl 0.9: its synchronous trainer, with rows drawn by `CurriculumSampler`.

    loaded=runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES=magellan.integrations.verl_trainer
    python -m verl.trainer.main_ppo +ray_kwargs.ray_init.$loaded \\
        trainer.v1.trainer_mode=curriculum +data.curriculum.sampler=learnability ...

The scores of a step reach the curriculum before its checkpoint is saved and before the next draw,
so that a run that was resumed draws what one without a stop draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import transfer_queue
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from magellan.core.errors import InputError
from magellan.integrations.verl import CurriculumSampler


@register_trainer("curriculum")
class CurriculumTrainer(PPOTrainerSync):
    """verl's trainer, which draws rows by a curriculum and reports the scores of answers to it.

    Raises:
        InputError: `algorithm.filter_groups` is enabled, which discards groups of equal scores
            before the curriculum sees them; `data.sampler` names another sampler; or a row has no
            unique `extra_info.index`.
    """

    train_dataloader: Any

    def __init__(self, config: Any) -> None:
        if (config.algorithm.get("filter_groups") or {}).get("enable"):
            hidden = "the curriculum would not see groups of equal scores"
            raise InputError(f"algorithm.filter_groups.enable: True; {hidden}; allowed: False")
        other = (config.data.get("sampler") or {}).get("class_path")
        if other:
            raise InputError(
                f"data.sampler.class_path: {other!r} is not allowed, as the curriculum draws the "
                "rows; allowed: null"
            )
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
        # A key is `{row}_{answer}_{part}`; the parts of an answer share its score.
        rows = [
            key
            for key, tag in zip(batch.keys, batch.tags, strict=True)
            if not tag.get("is_padding")
        ]
        data = transfer_queue.kv_batch_get(
            keys=list({key.rsplit("_", 1)[0]: key for key in rows}.values()),
            partition_id=batch.partition_id,
            select_fields=["extra_info", "rm_scores"],
        )
        scores = np.array([score.sum().item() for score in data["rm_scores"].unbind()])
        self.curriculum_sampler.record(list(data["extra_info"]), scores)
        metrics.update(self.curriculum_sampler.curriculum.metrics("curriculum/"))
        return super()._compute_advantage(batch, metrics)
