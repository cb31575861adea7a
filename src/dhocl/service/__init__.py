"""The learner as a service: observations come in over HTTP and are learned from within seconds."""
