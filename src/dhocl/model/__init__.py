"""The object that learns: a learner with its tree, its knowledge source and its calibration."""

from dhocl.model.model import Model, ModelConfig, Observation, Revision

__all__ = ["Model", "ModelConfig", "Observation", "Revision"]
