#!/bin/sh
# Looks for the right sum in what the leader wrote: 1 + 2 = 3 over two processes on two hosts.
said=$(kubectl "$@" logs --tail=20 -l app.kubernetes.io/part-of=mpi,grove.io/clique-name=leader) || exit 1
echo "$said" | grep '^allreduce over 2 processes: 3 on mpi-0-worker-0 mpi-0-worker-1$' && exit 0
echo "no allreduce over both workers: $said" >&2
exit 1
