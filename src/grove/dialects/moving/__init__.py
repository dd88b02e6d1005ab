"""What people have today, as a PodCliqueSet to move to: LeaderWorkerSets, Volcano Jobs, Deployments in a PodGroup."""
