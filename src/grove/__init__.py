"""Grove: whole inference systems on Kubernetes, described as one object and placed as one gang."""

__version__ = "0.2.0"
