"""How `ccpr` ends. 0 is done, 1 is an error."""

USAGE = 2  # what was typed is wrong; nothing was done
BEHIND = 3  # all is done but for some tables, which are named: they lag in a target, or do not fit into a place
NOT_CONFIRMED = 4  # something would be destroyed, and was not confirmed; nothing was done
INTERRUPTED = 130
