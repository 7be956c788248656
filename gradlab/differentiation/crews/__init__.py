"""Workers that evaluate for a check: processes, threads, other machines.

What is to be evaluated is cut into `pieces`, which a worker takes up in `work`; `pools`
knows the kinds of executors, `silence` what to say while none answers, and `workers`
hands out and puts together. Doors ask `opening`, which loads the rest when needed.
"""

__all__: list[str] = []
