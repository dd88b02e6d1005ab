"""Other ways to write a Grove workload, kept as a PodCliqueSet each: `grove.dynamo.ai/v1` and `grove.ai/v1alpha1`.

`dynamo` and `koord` translate (pure, from plain JSON), `placement` reads rules about where gangs go, `record` merges a
translation into a set that lives, `controller` does it in a cluster.
"""
