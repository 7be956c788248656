"""For courses: lessons, bugs planted on purpose, and the hunt for them.

`gradlab.teaching.hunt.Hunt` is the game without its window, `gl.BugHunt` the window.
`gradlab.teaching.planting.plant` writes another mistake into right code for everybody.
`gradlab.teaching.lessons.check_answer` judges the exercises of the lessons in
`tutorials/`.
"""
