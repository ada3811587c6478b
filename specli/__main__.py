"""`python -m specli`."""

from specli.terminal.supervisor import main

if __name__ == "__main__":
    main()
