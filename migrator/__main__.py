"""`python -m migrator`."""

from migrator.main import main

if __name__ == "__main__":
    main()
