"""`python -m grove` is the `grove` command."""

from grove.cli.main import main

if __name__ == "__main__":
    main()
