// What holds a pod's namespaces open: it waits to be told to stop.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM)
	<-told
}
