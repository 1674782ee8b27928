"""Task `detection`: find the digits on a canvas, in the manner of DETR: queries, and a Hungarian matcher."""
