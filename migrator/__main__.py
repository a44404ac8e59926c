"""`python -m migrator`."""

from migrator.cli.main import main

if __name__ == "__main__":
    main()
