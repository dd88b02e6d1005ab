"""`python -m grove.startup`: the same as `grove startup`, without loading the rest of the command line."""

import sys

from grove.startup.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
