"""`python -m memserver`: the command line."""

from memserver.cli.main import main

main()
