"""An HTTP service: observations are learned within seconds, and images predicted at any time."""
