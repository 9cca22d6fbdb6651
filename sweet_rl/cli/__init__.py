"""The command `memserver train`."""

from sweet_rl.cli.main import app as app
