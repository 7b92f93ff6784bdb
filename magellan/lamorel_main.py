"""Script that lamorel's launcher runs in each process (docs/lamorel.md).

    python -m lamorel_launcher.launch --config-path $PWD/config/little_zoo \\
        --config-name local_gpu_config_magellan rl_script_args.path=$PWD/magellan/lamorel_main.py \\
        rl_script_args.output_dir=outputs/magellan rl_script_args.seed=0
"""

import sys
from pathlib import Path


def run() -> None:
    """Run the launcher's entry point and exit."""
    # As a script, its folder is on the path: this package's modules would shadow other packages.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from magellan.core.environment import prepare

    prepare()
    from magellan.launcher.run import main

    main()


if __name__ == "__main__":
    run()
