"""How `ccpr` ends. 0 is done, 1 is an error."""

USAGE = 2  # what was typed is wrong; nothing was done
BEHIND = 3  # `ccpr run`: the point is made, and tables of a target are not at it
INTERRUPTED = 130
