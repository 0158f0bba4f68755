"""`python -m ccpr.cli` is `ccpr`."""

from ccpr.cli.main import main

main()
