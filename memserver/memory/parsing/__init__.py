"""From a file's bytes to text with its pages, headings, records and sentences."""
