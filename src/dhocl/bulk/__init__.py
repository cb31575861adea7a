"""Learn a whole data set at once, on all cores or on a Ray cluster: what its parts add up to, in any order."""
