"""Turns finished data into text, Markdown, HTML and JSON. Returns strings; prints and measures nothing."""
