"""A plan as a picture: SVG and Mermaid."""
