"""The running scheduler: follow the cluster, decide, bind, report. All of its I/O is here."""
