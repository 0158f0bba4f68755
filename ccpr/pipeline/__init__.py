"""How an iteration goes: from a due row of `mo_ccpr_log` to a committed point of the mirror. Knows no orchestrator."""
