"""What people read of a run: a page, pictures, tables, comparisons."""
