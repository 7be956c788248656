"""Live views: the page of a report with a kernel behind it."""
