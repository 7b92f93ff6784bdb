"""Figures of the released code by (row, shape, size), in the unit of the row.

The authors' code (LorisGaven/MAGELLAN at 20f2729, on lamorel at dce6f0d and LittleZoo at eae35b2),
patched only as far as it needs to run: one thread on one core of a 2-core x86-64 machine without a
GPU. Its model has the shape `t5` of `benchmarks.shapes`. This code was never timed on that machine,
so tables show both figures and no ratio.
"""

MODEL = "a random T5 of 206,080 parameters"
WHERE = f"timed on another machine, on one core, with {MODEL}"
NO_RATIO = "no ratio is given, as ratios need one machine"

RELEASED: dict[tuple[str, str, str], float] = {
    ("random play, resets included", "", ""): 1_880.0,
    ("goal space: build", "", "25k"): 81.5,
    ("goal space: peak memory of a process", "", "25k"): 18_200.0,
    ("online: draw one goal", "", "25k"): 4.3,
    ("online: draw one goal", "", "50k"): 10.8,
    ("online: draw one goal", "", "100k"): 51.0,
    ("online: update, 32 outcomes", "", "25k"): 284.0,
    ("online: update, 32 outcomes", "", "50k"): 569.0,
    ("online: update, 32 outcomes", "", "100k"): 1_168.0,
    ("ek_online: update, 32 outcomes", "", "25k"): 980.0,
    ("ek_online: update, 32 outcomes", "", "50k"): 4_300.0,
    ("ek_online: update, 32 outcomes", "", "100k"): 24_500.0,
    ("magellan: draw one goal", "", "25k"): 4.8,
    ("magellan: draw one goal", "", "50k"): 9.5,
    ("magellan: draw one goal", "", "100k"): 20.0,
    ("acting", "t5", ""): 452.0,
    ("SAC update", "t5", ""): 2.64,
    ("competence update", "t5", ""): 0.21,
    ("LP refresh", "t5", "25k"): 19.9,  # its faster setting; 47.6 s with the published minibatch
    ("whole loop", "t5", "25k"): 14.0,
    ("whole loop without refresh", "t5", ""): 21.0,
}
