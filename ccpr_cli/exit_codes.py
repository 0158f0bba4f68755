"""How `ccpr` ends. 0 is done, 1 is an error."""

USAGE = 2  # what was typed is wrong; nothing was done
INTERRUPTED = 130
