"""Everything breaks on a real control plane, by seed: `python -m chaos --seed 7 --minutes 5`."""
