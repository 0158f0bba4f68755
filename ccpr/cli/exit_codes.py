"""How `ccpr` ends. 0 is done, 1 is an error."""

USAGE = 2  # what was typed is wrong; nothing was done
BEHIND = 3  # `ccpr run`: the point is made, and tables of a target lag
NOT_CONFIRMED = 4  # something would be destroyed, and was not confirmed; nothing was done
INTERRUPTED = 130
