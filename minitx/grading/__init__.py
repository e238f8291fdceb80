"""Checks a student's answers: the smallest input on which they fail, and the likely mistake.

- ``exercise.py``: what an exercise is; ``checks/``: one file an exercise; ``references.py``: the
  right answers, taken from the package.
- ``child.py``, ``wire.py``, ``sandbox.py``: the process that runs a student's code.
- ``grader.py`` draws inputs and compares; ``diagnose.py`` names mistakes; ``report.py`` prints.
- ``commands.py``: ``minitx exercises`` and ``minitx grade``.
"""
