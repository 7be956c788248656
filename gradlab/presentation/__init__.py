"""Text, pages, tables, figures and widgets; draws numbers, computes none."""

__all__: list[str] = []
