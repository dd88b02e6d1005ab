"""Real nodes on this machine: kubelets with containerd, Services that route, and cluster DNS.

`real_nodes` gives such a cluster to a test or a script. It needs root and the packages that `preflight` names::

    from grove.local.nodes.cluster import real_nodes

    with real_nodes(2, images=[Path("dist/grove-initc.tar")]) as cluster:
        cluster.import_image(Path("build/my-engine.tar"))   # an OCI archive, into every node
        cluster.kubectl("apply", "-f", "manifest.yaml")
        cluster.enter()                                     # from here on this process reaches pods and Services
        urlopen(f"http://{pod_ip}:8080/health")

`grove up --real-nodes 2` runs the same cluster for a person, with Grove on it.

The layout: `inside` is the first process of new network, mount and process namespaces. Its network namespace holds
the control plane and a bridge. Each node has a network and a mount namespace of its own, joined to the bridge. When
`inside` ends, the kernel ends every process, mount and interface. Only cgroups, a few kernel settings and files remain.
`leftovers` records them before the start and removes them after the end, also after a kill.
"""
