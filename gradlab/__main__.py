"""``python -m gradlab`` is ``gradlab``, also where scripts are not on PATH."""

from __future__ import annotations

from gradlab.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
