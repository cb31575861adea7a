"""Knowledge sources, and the curator that asks them."""

from dhocl.knowledge.curator import Curator
from dhocl.knowledge.source import Corrupted, KnowledgeSource, Link, Oracle, Silent

__all__ = ["Corrupted", "Curator", "KnowledgeSource", "Link", "Oracle", "Silent"]
