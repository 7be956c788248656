"""Subjects made of torch: functions, custom Functions and modules.

`subjects.torch_subject` makes one; what a call takes, gives and hides is in the files
beside it. torch is imported late, here and in a few other files.
"""

__all__: list[str] = []
