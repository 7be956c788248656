"""Subjects made of torch: functions, custom Functions and modules.

`subjects.torch_subject` makes one of private copies of tensors (`values`), which a
program is called on (`calling`), and reads what it returned (`outputs`). `gradients` is
what autograd answers, `in_double` the same program in float64; `batching` and
`incremental` save evaluations. torch is imported late, here and in a few other files.
"""

__all__: list[str] = []
