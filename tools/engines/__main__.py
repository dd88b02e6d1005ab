"""`make engines`: writes the images of samples/engines as OCI archives.

    python -m tools.engines                     every image, into dist/engines
    python -m tools.engines llama-cpp-rpc       one of them
    python -m tools.engines lock                moves debian.lock to the newest packages that apt lists

The first run builds llama.cpp (12 CPU minutes) and keeps the programs in ~/.cache/grove/engines.
Needs an x86-64 host with apt-get, pip, cmake, ninja and a C++ compiler. It installs nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path

from tools.engines.assemble import LOCK, inputs, write_image
from tools.engines.recipe import SAMPLES, Recipe, with_image
from tools.image.sources import Missing, locked, write_lock

ROOT = Path(__file__).parents[2]


def default_cache() -> Path:
    """The folder that keeps downloads and built programs between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grove" / "engines"


def check_host(machine: str) -> None:
    """Raises Missing on a host that cannot build the images: programs are compiled here, for x86-64 only."""
    if machine.lower() not in ("x86_64", "amd64"):
        raise Missing(
            f"the images of samples/engines are for x86-64 only, and this host is {machine}. "
            "Build them on an x86-64 host. Grove's own images are for Arm too: make image ARCH=arm64"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="folders of samples/engines, or `lock`")
    parser.add_argument("--target", type=Path, default=ROOT / "dist" / "engines")
    parser.add_argument("--cache", type=Path, default=default_cache())
    given = parser.parse_args(arguments)
    if given.names == ["lock"]:
        write_lock(locked(LOCK), LOCK)
        return 0
    if unknown := sorted(set(given.names) - set(with_image())):
        parser.error(f"no recipe for {', '.join(unknown)}; there are {', '.join(with_image())}")
    try:
        check_host(platform.machine())
        for name in given.names or with_image():
            recipe = Recipe.of(SAMPLES / name)
            made_of, mark = inputs(recipe), given.target / f"{name}.inputs"
            if (given.target / f"{name}.tar").exists() and mark.exists() and mark.read_text() == made_of:
                print(f"{name}  is up to date")
                continue
            archive, image = write_image(recipe, given.target, given.cache)
            mark.write_text(made_of)
            print(f"{name}  {image.digest}  {image.compressed / 1e6:.1f} MB compressed  {archive}", flush=True)
    except Missing as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
