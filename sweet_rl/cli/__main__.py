"""`python -m sweet_rl.cli`: the command where memserver's server, and what that needs, isn't installed."""

import sys

from memserver.errors import MemserverError
from sweet_rl.cli.main import app

try:
    app()
except MemserverError as error:
    print(f"{error.message}\n  {error.hint}", file=sys.stderr)
    sys.exit(1)
