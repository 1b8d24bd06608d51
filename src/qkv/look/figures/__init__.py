"""Pictures of a few numbers, each written to an SVG file: lines, bars, grids of weights, timelines and trees."""
