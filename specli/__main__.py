"""`python -m specli`."""

from specli.terminal.app import main

if __name__ == "__main__":
    main()
