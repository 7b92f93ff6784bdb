"""Learnability: p (1 - p), p the success rate of each goal's last outcomes."""

from __future__ import annotations

from magellan.core.settings import NoSettings
from magellan.samplers.base import GoalSampler
from magellan.samplers.registry import SamplerParts, register_sampler
from magellan.samplers.signals import learnability


@register_sampler("learnability", "Learnability", estimator="per_goal", explores="arms")
def build(parts: SamplerParts, settings: NoSettings) -> GoalSampler:
    """Sampling for learnability (SFL, Rutherford et al. 2024, arXiv 2408.15099), p from practice.

    SFL plays extra episodes of random goals to measure p, trains on the most learnable and mixes in
    random ones. Here p is the mean of the newer half of a goal's window, draws are in proportion to
    p (1 - p), and exploration is the mix: a goal never tried has p = 0 and weight 0, and is drawn
    with probability epsilon / goals, which never falls to 0.

    Where every window is all 0 or all 1 no goal is learnable and draws are uniform, as SFL's are
    among equal scores: a policy that always answers alike is led back to goals beyond it.

    A group of answers is one outcome of the window, and a single group tells a success rate. With
    `epsilon_end: 0` a goal that failed at first is never drawn again while another has a weight.
    """
    return GoalSampler(parts.goals, parts.estimator, learnability, parts.epsilon, parts.rng)
