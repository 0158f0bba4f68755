"""`python -m ccpr_cli` is `ccpr`."""

from ccpr_cli.main import main

main()
