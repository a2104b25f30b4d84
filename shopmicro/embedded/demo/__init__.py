"""`make demo`: the whole system on this machine, and a walk through what it promises."""
